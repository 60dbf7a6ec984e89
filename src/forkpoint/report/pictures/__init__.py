"""Incident, Verdict -> Picture: what a page draws. Only computed if a page is requested; nothing is judged here."""

import numpy as np

from forkpoint.model.incident import Incident
from forkpoint.model.picture import Picture
from forkpoint.model.verdict import Verdict
from forkpoint.report.pictures.groups import OpNames, draw_groups
from forkpoint.report.pictures.lanes import draw_arrivals, draw_lanes
from forkpoint.report.pictures.ranks import find_mesh, find_places, find_states


def draw(incident: Incident, verdict: Verdict) -> Picture:
    world = incident.timeline.world
    places = find_places(incident)
    mesh = find_mesh(world, incident.timeline.groups, places)
    ops = OpNames()
    groups, left_out = draw_groups(incident, verdict, ops)
    return Picture(
        ranks=np.array(world, np.int32),
        state=find_states(incident, verdict),
        suspect=np.isin(np.array(world, np.int64), np.array(verdict.suspects, np.int64)).astype(np.uint8),
        cohort=_cohorts(verdict, world),
        hosts=places.hosts,
        host=places.host,
        local=places.local,
        axes=mesh.axes,
        position=mesh.position,
        ops=ops.names(),
        groups=groups,
        groups_left_out=left_out,
        lanes=draw_lanes(incident.timeline, verdict),
        arrivals=draw_arrivals(incident),
    )


def _cohorts(verdict: Verdict, world: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    found: dict[int, int] = {}
    for index, cohort in enumerate(verdict.divergence.cohorts if verdict.divergence else ()):
        found.update(dict.fromkeys(cohort.ranks, min(index, np.iinfo(np.int16).max)))
    return np.array([found.get(rank, -1) for rank in world], np.int16)
