"""Errors of CPU and memory that the kernel reported in the last day. Memory errors that were corrected are told only."""

from collections.abc import Sequence

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.kernel_log import look_at_kernel, say, told
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind


def _judge(events: Sequence[KernelEvent]) -> CheckResult:
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


CHECK = Check(
    name="machine-checks",
    title="no errors of CPU or memory",
    why="A machine check kills the process whose memory is bad, or the node; its ranks go silent.",
    look=look_at_kernel({KernelKind.MACHINE_CHECK}, _judge),
    inject=say("mce: [Hardware Error]: Machine check events logged"),
)
