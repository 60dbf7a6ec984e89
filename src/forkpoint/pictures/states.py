"""One state per rank: from the divergence, from what is pending, from logs where nothing was recorded."""

import numpy as np

from forkpoint.detectors.departures import Departure, find_departed
from forkpoint.log_progress import view_logs
from forkpoint.model.divergence import Role
from forkpoint.model.incident import Incident
from forkpoint.model.picture import Bytes, RankState
from forkpoint.model.verdict import Cause, Verdict

_BY_ROLE = {
    Role.WAITING: RankState.WAITING,
    Role.AHEAD: RankState.AHEAD,
    Role.BEHIND: RankState.BEHIND,
    Role.ELSEWHERE: RankState.ELSEWHERE,
    Role.SILENT: RankState.SILENT,
}
_ENDED = frozenset({Departure.KILLED, Departure.RAISED, Departure.LEFT, Departure.GPU_FAILED})
"""Mere silence does not show that a process ended."""


def find_states(incident: Incident, verdict: Verdict) -> Bytes:
    if verdict.cause is Cause.HEALTHY:  # what is pending is on its way out
        states = dict.fromkeys(incident.timeline.traces, RankState.AGREED)
    else:
        states = _outside(incident) | _in_divergence(verdict) | _ended(incident)
    return np.array([states.get(rank, RankState.SILENT) for rank in incident.timeline.world], np.uint8)


def _outside(incident: Incident) -> dict[int, RankState]:
    """Ranks outside the divergence: by what is pending, or by their own logs."""
    timeline = incident.timeline
    states = {
        rank: RankState.WAITING if stands else RankState.AGREED
        for rank, stands in timeline.positions.items()
        if timeline.traces[rank].entries
    }
    return _from_logs(incident) | states


def _from_logs(incident: Incident) -> dict[int, RankState]:
    view = view_logs(incident)
    if view is None:
        return {}
    told = (
        (view.elsewhere, RankState.ELSEWHERE),
        (view.ahead, RankState.AHEAD),
        (view.behind, RankState.BEHIND),
        (view.other, RankState.WAITING),
        (view.waiting, RankState.WAITING),
    )
    return {progress.rank: state for ranks, state in told for progress in ranks}


def _in_divergence(verdict: Verdict) -> dict[int, RankState]:
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    return {rank: _BY_ROLE[cohort.role] for cohort in cohorts for rank in cohort.ranks}


def _ended(incident: Incident) -> dict[int, RankState]:
    """A rank that dumped was there when the others waited, however it ended afterwards."""
    gone = [d.rank for d in find_departed(incident) if d.how in _ENDED and d.rank not in incident.timeline.traces]
    return dict.fromkeys(gone, RankState.LOST)
