"""State, host and position in the mesh of each rank."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod

import numpy as np
from msgspec import Struct

from forkpoint.judge.facts.departures import Departure, find_departed
from forkpoint.judge.facts.log_progress import view_logs
from forkpoint.model.incident import Incident, Role
from forkpoint.model.picture import Axis, Bytes, RankState, Shorts, Words
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.verdict import Cause, Verdict

_MAX_LOCAL = np.iinfo(np.int16).max


class RankPlaces(Struct, frozen=True, eq=False):
    hosts: tuple[str, ...]
    host: Words
    local: Shorts


def find_places(incident: Incident) -> RankPlaces:
    """From NCCL's own lines; if there are none, from a launcher's prefix on the rank's lines."""
    where: dict[int, tuple[str, int | None]] = {}
    for rank, events in incident.said.items():
        speaker = next((e.speaker for e in events if e.speaker.host and e.speaker.rank in (None, rank)), None)
        if speaker is not None and speaker.host:
            where[rank] = (speaker.host, speaker.local_rank)
    where |= {place.rank: (place.host, place.gpu) for place in incident.capture.places if place.host}
    world = incident.timeline.world
    hosts = tuple(dict.fromkeys(where[rank][0] for rank in world if rank in where))
    number = {host: index for index, host in enumerate(hosts)}
    return RankPlaces(
        hosts=hosts,
        host=np.array([number[where[rank][0]] if rank in where else -1 for rank in world], np.int32),
        local=np.array([_local(where.get(rank)) for rank in world], np.int16),
    )


def _local(place: tuple[str, int | None] | None) -> int:
    return place[1] if place is not None and place[1] is not None and 0 <= place[1] <= _MAX_LOCAL else -1


# ---------------------------------------------------------------------------------------------------------------------
# The state of each rank: from the divergence, from its pending op, or from logs if nothing was recorded.

_BY_ROLE = {
    Role.WAITING: RankState.WAITING,
    Role.AHEAD: RankState.AHEAD,
    Role.BEHIND: RankState.BEHIND,
    Role.ELSEWHERE: RankState.ELSEWHERE,
    Role.SILENT: RankState.SILENT,
}
_ENDED = frozenset({Departure.KILLED, Departure.DIED, Departure.RAISED, Departure.LEFT, Departure.GPU_FAILED})
"""Silence alone does not show that a process ended."""


def find_states(incident: Incident, verdict: Verdict) -> Bytes:
    if verdict.cause is Cause.HEALTHY:  # its pending ops are being aborted
        states = dict.fromkeys(incident.timeline.traces, RankState.AGREED)
    else:
        states = _outside(incident) | _in_divergence(verdict) | _ended(incident)
    return np.array([states.get(rank, RankState.SILENT) for rank in incident.timeline.world], np.uint8)


def _outside(incident: Incident) -> dict[int, RankState]:
    """Ranks outside the divergence: from their pending op, or from their logs."""
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
    states = (
        (view.elsewhere, RankState.ELSEWHERE),
        (view.ahead, RankState.AHEAD),
        (view.behind, RankState.BEHIND),
        (view.other, RankState.WAITING),
        (view.waiting, RankState.WAITING),
    )
    return {progress.rank: state for ranks, state in states for progress in ranks}


def _in_divergence(verdict: Verdict) -> dict[int, RankState]:
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    return {rank: _BY_ROLE[cohort.role] for cohort in cohorts for rank in cohort.ranks}


def _ended(incident: Incident) -> dict[int, RankState]:
    """A rank with a dump was alive while the others waited, however it ended afterwards."""
    gone = [d.rank for d in find_departed(incident) if d.how in _ENDED and d.rank not in incident.timeline.traces]
    return dict.fromkeys(gone, RankState.LOST)


# ---------------------------------------------------------------------------------------------------------------------
# The mesh of the ranks: from the process groups, else node x local rank, else a plain row.
#
# A family of groups is an axis if the groups have the same size, do not overlap and cover the job. Meshes are laid out with
# strides (DeviceMesh, Megatron), so if the groups of missing ranks are unknown, the stride of the others gives their
# position.

_MAX_AXES = 4
_MAX_FAMILIES = 12
"""Limit of candidates: a job has fewer kinds of groups, and the number of subsets stays below a thousand."""
_UNNAMED = frozenset({"", "undefined"})
_NUMBER = re.compile(r"[_-]?[0-9]{1,9}$")
"""`tp_0`, `tp_1`: groups of one family that were numbered by hand."""


class Mesh(Struct, frozen=True, eq=False):
    axes: tuple[Axis, ...]
    position: Words


class _Candidate(Struct, frozen=True, eq=False):
    name: str
    size: int
    stride: int
    """Distance between neighbours: the outermost axis has the largest."""
    along: Words
    """Per rank, its position on this axis."""


def find_mesh(world: tuple[int, ...], groups: Sequence[GroupTimeline], places: RankPlaces) -> Mesh:
    return _from_groups(world, groups) or _from_hosts(world, places) or _row(world)


def _from_groups(world: tuple[int, ...], groups: Sequence[GroupTimeline]) -> Mesh | None:
    candidates = _candidates(world, groups)
    for count in range(min(_MAX_AXES, len(candidates)), 0, -1):
        for chosen in combinations(candidates, count):
            mesh = _lay_out(world, chosen)
            if mesh is not None:
                return mesh
    return None


def _candidates(world: tuple[int, ...], groups: Sequence[GroupTimeline]) -> list[_Candidate]:
    """Named families before unnamed ones, the innermost first."""
    index = {rank: i for i, rank in enumerate(world)}
    families: dict[tuple[str, int, int], set[tuple[int, ...]]] = {}
    for ranks, desc in {(g.group.ranks, g.group.desc) for g in groups}:
        if 1 < len(ranks) < len(world) and all(rank in index for rank in ranks):
            members = tuple(index[rank] for rank in ranks)
            name = "" if desc in _UNNAMED else _NUMBER.sub("", desc.removeprefix("mesh_"))
            families.setdefault((name, len(members), members[1] - members[0]), set()).add(members)
    found: list[_Candidate] = []
    for (name, size, stride), family in sorted(
        families.items(), key=lambda item: (not item[0][0], item[0][2], item[0])
    ):
        along = _along(family, size, stride, len(world))
        if along is not None:
            found.append(_Candidate(name or f"groups of {size}", size, stride, along))
    return found[:_MAX_FAMILIES]


def _along(family: set[tuple[int, ...]], size: int, stride: int, world: int) -> Words | None:
    """Each rank's position within its group; None if this family is not an axis."""
    known = Counter(member for members in family for member in members)
    if max(known.values()) > 1 or 2 * len(known) < world:
        return None  # the groups overlap, or are only a few besides the mesh
    along = np.full(world, -1, np.int32)
    for members in family:
        along[list(members)] = np.arange(size)
    if len(known) == world:
        return along
    if len(family) < 2 or stride <= 0 or world % (stride * size):
        return None  # one group shows no order
    strided = (np.arange(world) // stride % size).astype(np.int32)
    return strided if bool(((along == strided) | (along < 0)).all()) else None


def _lay_out(world: tuple[int, ...], chosen: Iterable[_Candidate]) -> Mesh | None:
    """None if two ranks would share a position. Ranks that no axis separates get one more axis, the outermost."""
    ordered = sorted(chosen, key=lambda c: -c.stride)
    sizes = [c.size for c in ordered]
    replicas, rest = divmod(len(world), prod(sizes))
    if rest or not replicas:
        return None
    places = np.ravel_multi_index([c.along for c in ordered], sizes)
    taken = np.bincount(places, minlength=prod(sizes))
    if (taken != replicas).any():
        return None
    axes = [Axis(c.name, c.size) for c in ordered]
    position = np.column_stack([c.along for c in ordered])
    if replicas > 1:
        axes.insert(0, Axis("replica", replicas))
        position = np.column_stack([_nth_of_its_kind(places), position])
    return Mesh(tuple(axes), np.ascontiguousarray(position, np.int32))


def _nth_of_its_kind(values: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Words:
    """0 for the first of each value, 1 for the second, and so on."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    nth = np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))
    found = np.zeros(len(values), np.int32)
    found[order] = nth
    return found


def _from_hosts(world: tuple[int, ...], places: RankPlaces) -> Mesh | None:
    """Only if every rank's host is known: ranks without a host would be missing."""
    if len(places.hosts) < 2 or bool((places.host < 0).any()):
        return None
    local = places.local.astype(np.int32)
    taken = set(zip(places.host.tolist(), local.tolist(), strict=True))
    if bool((local < 0).any()) or len(taken) < len(world):
        local = _nth_of_its_kind(places.host.astype(np.intp))
    axes = (Axis("node", len(places.hosts)), Axis("local rank", int(local.max()) + 1))
    return Mesh(axes, np.column_stack([places.host, local]).astype(np.int32))


def _row(world: tuple[int, ...]) -> Mesh:
    return Mesh((Axis("rank", len(world)),), np.arange(len(world), dtype=np.int32).reshape(-1, 1))
