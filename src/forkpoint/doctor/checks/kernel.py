"""What the kernel shows: counters read twice, and checks of what it logged in the last day."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.doctor.nvml import lacks_gpu, lacks_mellanox
from forkpoint.doctor.report import CheckResult, bad, check, ok, skipped
from forkpoint.doctor.system import System, Unanswered
from forkpoint.evidence.machine.kernel import Burst, group_bursts, read_kernel_log
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.kinds import KernelKind
from forkpoint.knowledge.base import Entry, EntryKind, entries

# ---------------------------------------------------------------------------------------------------------------------
# Kernel counters, read twice. They count since boot, so only the growth between two reads shows the present.

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Counter:
    before: int
    after: int

    @property
    def added(self) -> int:
        """0 if the counter was cleared in between."""
        return max(0, self.after - self.before)


def read_twice(system: System, paths: Iterable[str]) -> Mapping[str, Counter]:
    """By path; only files that can be read both times."""
    before = {path: value for path in paths if (value := read_number(system, path)) is not None}
    if not before:
        return {}
    system.pause(INTERVAL_S)
    after = {path: read_number(system, path) for path in before}
    return {path: Counter(before[path], value) for path, value in after.items() if value is not None}


def read_number(system: System, path: str) -> int | None:
    text = (system.read(path) or "").strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


# ---------------------------------------------------------------------------------------------------------------------
# Recent kernel messages, for the checks that judge them. Read with dmesg, else from the journal.
#
# An empty log proves nothing, since many systems let only root read it: the checks are then skipped.

LOOK_BACK_S = 24 * 3600
"""Last night's job, not last month's: the log goes back to boot, and a reset that fixed a GPU does not clear it."""

_LOG_SOURCES = (
    ("dmesg",),
    ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic"),
)
_AS_ROOT = "run the doctor as root, or as a member of the group that reads the journal (systemd-journal or adm)"


def recent_events(system: System, kinds: Collection[KernelKind]) -> tuple[KernelEvent, ...] | Unanswered:
    """Events of these kinds within the last day; one without a time counts as recent."""
    log = read_log(system)
    if isinstance(log, Unanswered):
        return log
    uptime = read_uptime(system)
    events = read_kernel_log(log, "the kernel log")
    return tuple(event for event in events if event.kind in kinds and _is_recent(event, uptime))


def look_at_kernel(
    kinds: Collection[KernelKind],
    judge: Callable[[Sequence[KernelEvent]], CheckResult],
    needs: Callable[[System], str | None] = lambda _system: None,
) -> Callable[[System], CheckResult]:
    """A check of recent events of these kinds. `needs`: why a machine without such events is skipped, not ok."""

    def look(system: System) -> CheckResult:
        events = recent_events(system, kinds)
        if isinstance(events, Unanswered):
            return skipped(events.why, events.fix)
        lacking = None if events else needs(system)
        return skipped(lacking) if lacking else judge(events)

    return look


def judge_presence(fix: str) -> Callable[[Sequence[KernelEvent]], CheckResult]:
    """Any such event is bad."""

    def judge(events: Sequence[KernelEvent]) -> CheckResult:
        return bad(told(events), fix) if events else ok("the kernel logged none in the last day")

    return judge


def told(events: Sequence[KernelEvent]) -> str:
    """Each message once, the latest last; at most the last three."""
    texts = list(dict.fromkeys(event.text for event in events))
    shown = "; ".join(texts[-_SHOWN:])
    return shown if len(texts) <= _SHOWN else f"{shown} (and {len(texts) - _SHOWN} more)"


_SHOWN = 3


def read_log(system: System) -> str | Unanswered:
    reasons: list[str] = []
    for argv in _LOG_SOURCES:
        ran = system.run(argv)
        if isinstance(ran, Unanswered):
            reasons.append(ran.why)
        elif ran.returncode or not ran.stdout.strip():
            first = next(iter(ran.stderr.strip().splitlines()), "it printed nothing")
            reasons.append(first if first.startswith(argv[0]) else f"{argv[0]}: {first}")
        else:
            return ran.stdout
    return Unanswered(f"the kernel log cannot be read ({'; '.join(reasons)})", _AS_ROOT)


def read_uptime(system: System) -> float | None:
    words = (system.read("/proc/uptime") or "").split()
    return float(words[0]) if words else None


def _is_recent(event: KernelEvent, uptime: float | None) -> bool:
    if uptime is None or event.when is None or not event.when.isdigit():
        return True
    return uptime - int(event.when) <= LOOK_BACK_S


# ---------------------------------------------------------------------------------------------------------------------
# What the kernel logged in the last day.

XID_KINDS = frozenset({KernelKind.XID, KernelKind.GPU_LOST, KernelKind.SXID, KernelKind.NVLINK})
_HARMLESS_XIDS = ("none", "slower")
_XIDS_OF_PROGRAMS = ("application", "follow-on", "none")


def _judge_xids(events: Sequence[KernelEvent]) -> CheckResult:
    """Xids and similar messages in the kernel log: what the driver logged about GPUs and NVSwitches in the last day.

    Bad are those that are more likely caused by hardware or driver and that end or hang a process. Xids that an application
    causes (13, 31, 43), that only follow another (45, 154) or that are harmless are reported, but are not this node's fault.
    Numbers that the knowledge base does not know are bad: they may be harmful. Events of one GPU within three minutes are one
    incident, and its first event counts (NVIDIA Fleet Intelligence does the same).
    """
    bursts = group_bursts(events)
    details = (("Xids of the last day", ", ".join(sorted({_xid_name(burst.first) for burst in bursts})) or "none"),)
    serious = [burst for burst in bursts if _is_serious_xid(burst)]
    if serious:
        first = serious[0].first
        return bad("; ".join(_say_xids(burst.first) for burst in serious), _fix_xids(first), *details)
    if bursts:
        mild = "; ".join(dict.fromkeys(_say_xids(burst.first) for burst in bursts))
        return ok(f"nothing points to a fault of this node; the kernel logged {mild}", *details)
    return ok("the kernel logged no Xid in the last day", *details)


def _is_serious_xid(burst: Burst) -> bool:
    event = burst.first
    if event.kind is KernelKind.SXID:
        return "Non-fatal" not in event.text and "non-fatal" not in event.text
    if event.explained_by is None:
        return True
    entry = _xid_entry(event)
    if entry is None:
        return True
    facts = dict(entry.facts)
    harmless = facts.get("effect on a job", "none").startswith(_HARMLESS_XIDS)
    return not harmless and not facts.get("likelier origin", "").startswith(_XIDS_OF_PROGRAMS)


def _xid_entry(event: KernelEvent) -> Entry | None:
    kind, code = (EntryKind.SXID, event.sxid) if event.kind is KernelKind.SXID else (EntryKind.XID, event.explained_by)
    return next((entry for entry in entries(kind) if entry.code == str(code)), None)


def _xid_name(event: KernelEvent) -> str:
    if event.kind is KernelKind.SXID:
        return f"SXid {event.sxid}"
    return "NVLink" if event.explained_by is None else f"Xid {event.explained_by}"


def _say_xids(event: KernelEvent) -> str:
    entry = _xid_entry(event)
    title = entry.title if entry else event.text
    return f"{_xid_name(event)} on {event.bus_id or 'some GPU'} ({title})"


def _fix_xids(event: KernelEvent) -> str:
    entry = _xid_entry(event)
    if entry is None:
        return "look it up in NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors), and keep the kernel log"
    return f"{' '.join(entry.do)} More: `forkpoint explain {entry.query}`"


XIDS = check("xids", look_at_kernel(XID_KINDS, _judge_xids, lacks_gpu))


_LINK_IS_UP = ("Link ACTIVE", "Link up", "Link UP")
_LINK = (*_LINK_IS_UP, "Link DOWN", "Link down", "Link INIT", "Link ARMED")


def _judge_adapter_messages(events: Sequence[KernelEvent]) -> CheckResult:
    """What the driver of Mellanox adapters logged in the last day: links that went down, cables, power, firmware.

    A link that came up again and stayed up is only mentioned; a link that is down, or any other trouble, is bad.
    """
    last: dict[tuple[str | None, str | None], KernelEvent] = {}
    for event in events:
        if _about_link(event):
            last[event.bus_id, event.device] = event
    down = [event for event in last.values() if not any(words in event.text for words in _LINK_IS_UP)]
    trouble = [*down, *(event for event in events if not _about_link(event))]
    if trouble:
        return bad(
            told(trouble),
            "`ibstat` or `ip -br link` for the state now, `mlxlink -d DEVICE --show_counters` for the cable (operator)",
        )
    changes = f"; {len(events)} messages of links that are up again" if events else ""
    return ok(f"the adapters' driver logged no trouble in the last day{changes}")


def _about_link(event: KernelEvent) -> bool:
    return any(words in event.text for words in _LINK)


ADAPTER_MESSAGES = check("adapter-messages", look_at_kernel({KernelKind.MLX5}, _judge_adapter_messages, lacks_mellanox))


# Processes that the kernel killed for memory in the last day, on the whole node.
OOM_KILLS = check(
    "oom-kills",
    look_at_kernel(
        {KernelKind.OOM_KILL},
        judge_presence(
            "compare its pid with the job's; give the job more memory, or fewer loader workers and smaller prefetch"
        ),
    ),
)


STALL_KINDS = frozenset({KernelKind.HUNG_TASK, KernelKind.SOFT_LOCKUP, KernelKind.NFS})


def _judge_kernel_stalls(events: Sequence[KernelEvent]) -> CheckResult:
    """Tasks that the kernel found stuck, CPUs that locked up, file servers that did not answer, in the last day."""
    stuck = [event for event in events if not _came_back(event, events)]
    if stuck:
        return bad(
            told(stuck),
            "find what it waits for: `cat /proc/PID/stack` (root), `timeout 5 ls` on the file systems the job reads and "
            "writes. A rank that waits for storage looks like a collective that hangs",
        )
    back = f"; {len(events)} messages of file servers that answer again" if events else ""
    return ok(f"the kernel found nothing stuck in the last day{back}")


def _came_back(event: KernelEvent, events: Sequence[KernelEvent]) -> bool:
    """`nfs: server X OK` after `nfs: server X not responding`."""
    if event.kind is not KernelKind.NFS:
        return False
    last = [other for other in events if other.kind is KernelKind.NFS and other.device == event.device][-1]
    return "not responding" not in last.text


KERNEL_STALLS = check("kernel-stalls", look_at_kernel(STALL_KINDS, _judge_kernel_stalls))


def _judge_machine_checks(events: Sequence[KernelEvent]) -> CheckResult:
    """Errors of CPU and memory that the kernel reported in the last day. Corrected memory errors are only mentioned."""
    serious = [event for event in events if not _is_corrected(event)]
    if serious:
        return bad(
            told(serious), "`ras-mc-ctl --summary` or the node's BMC log names the part; the operator replaces it"
        )
    corrected = f"; {len(events)} corrected memory errors" if events else ""
    return ok(f"no error of CPU or memory in the last day{corrected}")


def _is_corrected(event: KernelEvent) -> bool:
    """`EDAC MC0: 1 CE ...`, and firmware's `event severity: corrected`."""
    return (event.text.startswith("EDAC ") and " CE " in event.text) or "severity: corrected" in event.text


MACHINE_CHECKS = check("machine-checks", look_at_kernel({KernelKind.MACHINE_CHECK}, _judge_machine_checks))
