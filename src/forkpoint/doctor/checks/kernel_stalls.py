"""Tasks that the kernel found stuck, CPUs that did not come back, file servers that did not answer, in the last day."""

from collections.abc import Sequence

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.kernel_log import look_at_kernel, say, told
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind

KINDS = frozenset({KernelKind.HUNG_TASK, KernelKind.SOFT_LOCKUP, KernelKind.NFS})


def _judge(events: Sequence[KernelEvent]) -> CheckResult:
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


CHECK = Check(
    name="kernel-stalls",
    title="the kernel found nothing stuck",
    why="A rank stuck in storage or in the kernel never schedules the next collective, and its peers time out.",
    look=look_at_kernel(KINDS, _judge),
    inject=say("INFO: task pt_main_thread:136986 blocked for more than 120 seconds."),
)
