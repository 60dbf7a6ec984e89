"""Kernel messages and RAS answers as remarks: one per burst, with what only follows left out."""

from collections.abc import Iterable

from forkpoint.ingest.machine.bursts import Burst, group_bursts
from forkpoint.ingest.machine.kernel_event import KernelEvent
from forkpoint.ingest.machine.ras_report import Behind, RasReport, find_behind
from forkpoint.model.capture import Remark
from forkpoint.model.ranks import format_ranks


def kernel_remarks(events: Iterable[KernelEvent]) -> tuple[Remark, ...]:
    """Bursts of which everything only follows something else are no cause, and say so."""
    return tuple(_of_burst(burst) for burst in group_bursts(events))


def ras_remarks(reports: Iterable[RasReport]) -> tuple[Remark, ...]:
    behind = ((report, one) for report in reports for comm in report.communicators for one in find_behind(comm))
    return tuple(Remark(report.file, report.line, None, None, _tell_behind(one)) for report, one in behind)


def _of_burst(burst: Burst) -> Remark:
    first = burst.first
    times = sum(count.times for count in burst.counts)
    more = f" ({times} messages)" if times > 1 else ""
    follows = " (it only follows another fault)" if burst.cause is None else ""
    code = first.explained_by
    hint = f" (forkpoint explain {code})" if code is not None else ""
    return Remark(first.file, first.line, burst.host, burst.bus_id, f"{first.text}{more}{follows}{hint}")


def _tell_behind(behind: Behind) -> str:
    ranks = f"group ranks {format_ranks(behind.group_ranks, 8)}" if behind.group_ranks else f"{behind.total} ranks"
    what = behind.operation or "collectives"
    return f"NCCL RAS: {ranks} of communicator {behind.communicator.hash} launched {behind.launched} {what}, others {behind.most}"
