"""Collectives, aligned per process group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forkpoint.align.held import HeldGroups
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import GroupTrace, RankTrace, ReadGroup
from forkpoint.model.world import ProcessGroup

Key = tuple[object, object]
"""Of a group, as its traces tell it."""

# When one of these is done on one member, every member has issued it. A root may finish the others alone.
SYNCHRONISING = frozenset(
    {
        "all_reduce",
        "all_reduce_barrier",
        "allreduce_coalesced",
        "all_gather",
        "_all_gather_base",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced",
        "all_to_all",
        "barrier",
    }
)


@dataclass(slots=True)
class _Found:
    """A group on its way: what it is called, and where the ranks that hold it do."""

    name: str
    members: tuple[int, ...] | None
    desc: str
    places: dict[int, int]


def align_groups(traces: Mapping[int, RankTrace], world: tuple[int, ...]) -> dict[Key, GroupTimeline]:
    """One timeline per group of the job, by the key that its traces have, sorted by name and members."""
    found: dict[Key, _Found] = {}
    for rank in sorted(traces):
        for place, group in traces[rank].placed_groups():
            known = found.setdefault(group.key, _Found(group.name, group.members, group.desc, {}))
            known.desc = min(known.desc, group.desc)
            known.places[rank] = place
    timelines = {key: _timeline(group, traces, world) for key, group in found.items()}
    return dict(sorted(timelines.items(), key=lambda item: item[1].group))


def _timeline(found: _Found, traces: Mapping[int, RankTrace], world: tuple[int, ...]) -> GroupTimeline:
    name, desc, members, places = found.name, found.desc, found.members, found.places
    group = ProcessGroup(name, desc, members or _seen_members(name, desc, places, world), declared=members is not None)
    held = HeldGroups(traces, places, ReadGroup(name, desc, members))
    present = {rank: places.get(rank, -1) for rank in group.ranks if rank in traces}
    shown = held if present == places else HeldGroups(traces, present, ReadGroup(name, desc, members))
    return GroupTimeline(
        group=group,
        traces=shown,
        blind_after=_blind_after(shown, traces),
        evicted=frozenset(r for r, g in shown.items() if g.collectives is None and not traces[r].from_start),
        maybe=() if group.declared else _may_belong(group, held, traces, world),
    )


def _seen_members(name: str, desc: str, held: Iterable[int], world: tuple[int, ...]) -> tuple[int, ...]:
    """Gloo's dumps do not say who belongs to a group: the default group is the world, of others only users are known."""
    return world if desc == "default_pg" or name == "0" else tuple(sorted(held))


def _may_belong(
    group: ProcessGroup, held: HeldGroups, traces: Mapping[int, RankTrace], world: tuple[int, ...]
) -> tuple[int, ...]:
    """Every member has issued what one of them has done with all: a dump from the start that holds none of it is of no
    member. What other ranks are, nothing says.
    """
    used = any(_surely_issued(g) for g in held.values())
    outside = {r for r, t in traces.items() if used and t.from_start and not t.cut}
    return tuple(r for r in world if r not in group.ranks and r not in outside)


def _blind_after(present: HeldGroups, traces: Mapping[int, RankTrace]) -> dict[int, int]:
    """Ranks that may have gone on after their dump's last op: it was cut, or it was taken before its peers' dumps."""
    known_by_peers = max((_surely_issued(g) for g in present.values()), default=0)
    blind: dict[int, int] = {}
    for rank, group in present.items():
        track = group.collectives
        last = track.last_seq if track else 0
        if traces[rank].cut or (last < known_by_peers and not _may_be_evicted(group, traces[rank])):
            blind[rank] = last
    return blind


def _surely_issued(group: GroupTrace) -> int:
    """The highest seq that, done here, must have been issued by every member."""
    track = group.collectives
    done = track.last_done if track else None
    return done.seq if done and all(s.op in SYNCHRONISING for s in done.signatures) else 0


def _may_be_evicted(group: GroupTrace, trace: RankTrace) -> bool:
    return group.collectives is None and not trace.from_start
