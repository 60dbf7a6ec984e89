"""Xids and their like in the kernel log: what the driver said about GPUs and NVSwitches within the last day.

Bad are those that hardware or driver more likely cause and that end or hang a process. What an application causes
(13, 31, 43), what only follows (45, 154) and what costs nothing is told, but is not this node's fault. Numbers that the
knowledge base does not know are bad: nobody can say that they are harmless. Events of one GPU within three minutes are
one incident, and its first counts (NVIDIA Fleet Intelligence does the same).
"""

from collections.abc import Sequence

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.kernel_log import look_at_kernel, say
from forkpoint.doctor.pci import lacks_gpu
from forkpoint.ingest.machine.bursts import Burst, group_bursts
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind
from forkpoint.kb.entry import Entry, Kind
from forkpoint.kb.load import entries

KINDS = frozenset({KernelKind.XID, KernelKind.GPU_LOST, KernelKind.SXID, KernelKind.NVLINK})
_HARMLESS = ("none", "slower")
_NOT_THE_NODE = ("application", "follow-on", "none")


def _judge(events: Sequence[KernelEvent]) -> CheckResult:
    bursts = group_bursts(events)
    details = (("Xids of the last day", ", ".join(sorted({_name(burst.first) for burst in bursts})) or "none"),)
    serious = [burst for burst in bursts if _is_serious(burst)]
    if serious:
        first = serious[0].first
        return bad("; ".join(_say(burst.first) for burst in serious), _fix(first), *details)
    if bursts:
        mild = "; ".join(dict.fromkeys(_say(burst.first) for burst in bursts))
        return ok(f"nothing that speaks against the node; the kernel told of {mild}", *details)
    return ok("the kernel told of no Xid in the last day", *details)


def _is_serious(burst: Burst) -> bool:
    event = burst.first
    if event.kind is KernelKind.SXID:
        return "Non-fatal" not in event.text and "non-fatal" not in event.text
    if event.explained_by is None:
        return True
    entry = _entry(event)
    if entry is None:
        return True
    facts = dict(entry.facts)
    harmless = facts.get("effect on a job", "none").startswith(_HARMLESS)
    return not harmless and not facts.get("likelier origin", "").startswith(_NOT_THE_NODE)


def _entry(event: KernelEvent) -> Entry | None:
    kind, code = (Kind.SXID, event.sxid) if event.kind is KernelKind.SXID else (Kind.XID, event.explained_by)
    return next((entry for entry in entries(kind) if entry.code == str(code)), None)


def _name(event: KernelEvent) -> str:
    if event.kind is KernelKind.SXID:
        return f"SXid {event.sxid}"
    return "NVLink" if event.explained_by is None else f"Xid {event.explained_by}"


def _say(event: KernelEvent) -> str:
    entry = _entry(event)
    title = entry.title if entry else event.text
    return f"{_name(event)} on {event.bus_id or 'some GPU'} ({title})"


def _fix(event: KernelEvent) -> str:
    entry = _entry(event)
    if entry is None:
        return "look it up in NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors), and keep the kernel log"
    return f"{' '.join(entry.do)} More: `forkpoint explain {entry.query}`"


CHECK = Check(
    name="xids",
    title="no Xid speaks against this node",
    why="The rank on such a GPU dies or hangs; the ranks that print the timeout are its victims.",
    look=look_at_kernel(KINDS, _judge, lacks_gpu),
    inject=say("NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
)
