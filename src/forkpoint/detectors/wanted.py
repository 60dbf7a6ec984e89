"""Findings that name no cause, and the evidence that would decide one."""

from forkpoint.coverage import without_dumps
from forkpoint.model.divergence import Divergence
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Evidence, Finding
from forkpoint.symptom import is_pending

_FETCHED = 4


def inconclusive(
    summary: str,
    evidence: tuple[Evidence, ...],
    wanted: tuple[str, ...],
    *,
    suspects: tuple[int, ...] = (),
    action: Action = Action.INVESTIGATE,
    divergence: Divergence | None = None,
) -> Finding:
    return Finding(
        detector="undecided",
        cause=Cause.INCONCLUSIVE,
        suspects=suspects,
        confidence=0.0,
        summary=summary,
        action=action,
        evidence=evidence,
        divergence=divergence,
        next=wanted,
    )


def what_would_decide(incident: Incident) -> tuple[str, ...]:
    """Commands with this job's ranks in them."""
    absent = without_dumps(incident)
    wanted = [*fetch_written(incident)]
    if absent and not wanted:
        wanted.append(
            f"the dumps of {name_ranks(absent)} (beside the others: forkpoint diagnose DIR), or the end of their logs"
        )
    if not incident.capture.logs:
        wanted.append("the logs of all ranks: forkpoint diagnose DUMPS LOGS")
    if is_pending(incident) and not incident.capture.stacks:
        wanted.append("py-spy dump --pid PID on every rank while it hangs")
    return tuple(wanted) or ("py-spy dump --pid PID on every rank, twice, ten seconds apart, while it hangs",)


def fetch_written(incident: Incident) -> tuple[str, ...]:
    """Where logs say that dumps were written which were not given: one step, or nothing."""
    absent = without_dumps(incident)
    told = {e.rank: path for e in incident.capture.events if e.kind is LogKind.DUMPED and (path := e.detail("path"))}
    written = [f"{path.rstrip('.')} (rank {rank})" for rank, path in sorted(told.items()) if rank in absent]
    more = f" and {len(written) - _FETCHED} more" if len(written) > _FETCHED else ""
    return (
        (f"fetch {', '.join(written[:_FETCHED])}{more}: the logs say that these dumps were written",) if written else ()
    )
