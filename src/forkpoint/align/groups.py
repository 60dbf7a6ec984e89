"""Collectives, aligned per process group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from forkpoint.model.entries import TrackShape
from forkpoint.model.op_names import SYNCHRONISING
from forkpoint.model.rows import (
    NO_KIND,
    NO_VOLUMES,
    NOT_HELD,
    UNEVEN,
    GroupName,
    GroupRows,
    GroupTraces,
    GroupTracks,
    Rows,
)
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.traces import TracesByRank
from forkpoint.model.world import ProcessGroup

_NOBODY: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class _Job:
    """What is known of all ranks before any group is looked at."""

    world: tuple[int, ...]
    traces: TracesByRank
    cut: frozenset[int]
    tracks: GroupTracks
    surely_issued: list[int]
    """Per kind of track."""
    last_seq: list[int]

    def kinds(self, held: GroupTraces) -> list[int]:
        """Of each rank's track; NO_KIND without ops."""
        rows = held.rows
        if isinstance(rows, range):
            return self.tracks.kind[rows.start : rows.stop].tolist()
        return [NO_KIND if row == NOT_HELD else int(self.tracks.kind[row]) for row in rows]


def align_groups(
    rows: Rows, traces: TracesByRank, world: tuple[int, ...], cut: frozenset[int]
) -> tuple[GroupTimeline, ...]:
    """By the numbers that the rows give them."""
    table = GroupRows(rows, traces)
    with_messages = frozenset(np.unique(rows.channels.group).tolist())
    job = _Job(
        world=world,
        traces=traces,
        cut=cut,
        tracks=rows.groups,
        surely_issued=[_surely_issued(shape) for shape in rows.kinds],
        last_seq=[shape.last_seq for shape in rows.kinds],
    )
    return tuple(
        _timeline(table.holders(number, name), name, job, has_messages=number in with_messages)
        for number, name in enumerate(rows.names)
    )


def _timeline(held: GroupTraces, name: GroupName, job: _Job, *, has_messages: bool) -> GroupTimeline:
    members = name.members or _seen_members(name, held, job.world)
    group = ProcessGroup(name.name, name.desc, members, declared=name.members is not None)
    shown = held.among([rank for rank in sorted(members) if rank in job.traces])
    kinds = job.kinds(shown)
    return GroupTimeline(
        group=group,
        traces=shown,
        blind_after=_blind_after(shown, kinds, job),
        kinds=_one_of_each(shown, kinds),
        is_uneven=len(shown) == len(members) and _is_uneven(shown, job),
        has_messages=has_messages,
        maybe=() if group.declared else _may_belong(group, held, job),
    )


def _is_uneven(shown: GroupTraces, job: _Job) -> bool:
    if NOT_HELD in shown.rows:
        return False
    volumes = job.tracks.volumes[np.asarray(shown.rows)]
    return bool((volumes != NO_VOLUMES).all() and (volumes == UNEVEN).any())


def _seen_members(name: GroupName, held: Iterable[int], world: tuple[int, ...]) -> tuple[int, ...]:
    """Gloo's dumps do not say who belongs to a group: the default group is the world, of others only users are known."""
    return world if name.desc == "default_pg" or name.name == "0" else tuple(sorted(held))


def _one_of_each(shown: GroupTraces, kinds: list[int]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for rank, kind in zip(shown, kinds, strict=True):
        found.setdefault(kind, rank)
    return tuple((kind, rank) for kind, rank in found.items() if kind != NO_KIND)


def _may_belong(group: ProcessGroup, held: GroupTraces, job: _Job) -> tuple[int, ...]:
    """Every member has issued what one of them has done with all: a dump from the start that holds none of it is of no
    member. What other ranks are, nothing says.
    """
    used = any(kind != NO_KIND and job.surely_issued[kind] for kind in set(job.kinds(held)))
    known = frozenset(group.ranks)
    return tuple(r for r in job.world if r not in known and not (used and _tells_all(r, job)))


def _tells_all(rank: int, job: _Job) -> bool:
    """Its dump is whole, from the first op on: what it does not hold the rank did not do."""
    trace = job.traces.get(rank)
    return trace is not None and rank not in job.cut and trace.from_start and not trace.is_partial


def _blind_after(shown: GroupTraces, kinds: list[int], job: _Job) -> Mapping[int, int]:
    """Ranks that may have gone on after their dump's last op: it was cut, or it was taken before its peers' dumps."""
    distinct = set(kinds)
    known_by_peers = max((job.surely_issued[kind] for kind in distinct if kind != NO_KIND), default=0)
    last = {kind: 0 if kind == NO_KIND else job.last_seq[kind] for kind in distinct}
    if not job.cut and all(seq >= known_by_peers for seq in last.values()):
        return _NOBODY
    blind: dict[int, int] = {}
    for rank, kind in zip(shown, kinds, strict=True):
        may_be_evicted = kind == NO_KIND and not job.traces[rank].from_start
        if kind != NO_KIND and job.traces[rank].is_partial:
            continue  # what is done is left out: it may have issued all that its peers know of
        if rank in job.cut or (last[kind] < known_by_peers and not may_be_evicted):
            blind[rank] = last[kind]
    return blind


def _surely_issued(shape: TrackShape) -> int:
    """The highest seq that, done here, must have been issued by every member."""
    done = None if shape.last_done is None else shape.ops[shape.last_done]
    return done.seq if done and all(s.op in SYNCHRONISING for s in done.signatures) else 0
