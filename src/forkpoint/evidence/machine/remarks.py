"""Kernel messages and RAS answers as remarks: one per burst, without messages that only follow from another."""

from collections.abc import Iterable, Iterator

from forkpoint.evidence.machine.kernel import FOLLOWS_OTHERS, Burst, group_bursts
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.kinds import RAS
from forkpoint.evidence.machine.ras_report import Behind, RasCommunicator, RasReport, find_behind
from forkpoint.model.capture import Remark
from forkpoint.model.world import format_ranks


def kernel_remarks(events: Iterable[KernelEvent]) -> tuple[Remark, ...]:
    """Bursts of follow-on messages are never causes, and say so."""
    return tuple(_of_burst(burst) for burst in group_bursts(events))


def ras_remarks(reports: Iterable[RasReport]) -> tuple[Remark, ...]:
    """What differs, who did not answer, whom it lost. That all is well proves nothing: equal counts hang too."""
    return tuple(remark for report in reports for remark in _of_report(report))


def _of_burst(burst: Burst) -> Remark:
    first = burst.first
    times = sum(count.times for count in burst.counts)
    more = f" ({times} messages)" if times > 1 else ""
    follows = " (it only follows another fault)" if burst.cause is None else ""
    code = first.explained_by
    hint = f" (forkpoint explain {code})" if code is not None else ""
    return Remark(
        file=first.file,
        line=first.line,
        host=burst.host,
        bus_id=burst.bus_id,
        says=f"{first.text}{more}{follows}{hint}",
        kind=first.kind,
        when=first.when,
        xid=None if burst.cause is None or code in FOLLOWS_OTHERS else code,
        pids=burst.pids,
    )


def _of_report(report: RasReport) -> Iterator[Remark]:
    for comm in report.communicators:
        for one in find_behind(comm):
            yield _ras(report, report.line, _tell_behind(one), report.when)
        if comm.missing:
            yield _of_missing(report, comm)
    for event in report.events:
        if event.process is not None:
            told = f"NCCL RAS: {event.name}: process {event.process.pid} on {event.process.host}"
            yield _ras(report, event.line, told, event.when or None)


def _of_missing(report: RasReport, comm: RasCommunicator) -> Remark:
    ranks = tuple(rank.group_rank for rank in comm.missing)
    dead = sum(rank.process in report.dead for rank in comm.missing if rank.process)
    said = f", {dead} of them considered dead" if dead else ""
    says = f"NCCL RAS: no answer from group ranks {format_ranks(ranks, 8)} of communicator {comm.hash}{said}"
    # Text may name fewer than there are: then these are not all.
    whole = comm.size if len(ranks) == comm.missing_total else None
    return Remark(report.file, comm.line, None, None, says, RAS, report.when, missing=ranks, size=whole)


def _ras(report: RasReport, line: int, says: str, when: str | None) -> Remark:
    return Remark(report.file, line, None, None, says, RAS, when)


def _tell_behind(behind: Behind) -> str:
    ranks = f"group ranks {format_ranks(behind.group_ranks, 8)}" if behind.group_ranks else f"{behind.total} ranks"
    what = behind.operation or "collectives"
    return f"NCCL RAS: {ranks} of communicator {behind.communicator.hash} launched {behind.launched} {what}, others {behind.most}"
