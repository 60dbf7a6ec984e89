"""Collectives, aligned per process group."""

from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import GroupTrace, RankTrace
from forkpoint.model.world import ProcessGroup

_Key = tuple[str, tuple[int, ...] | None]

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


def align_groups(traces: dict[int, RankTrace], world: tuple[int, ...]) -> tuple[GroupTimeline, ...]:
    """One timeline per group of the job, sorted by name and members."""
    by_key: dict[_Key, dict[int, GroupTrace]] = {}
    for rank in sorted(traces):
        for group in traces[rank].groups:
            by_key.setdefault((group.name, group.members), {})[rank] = group
    return tuple(sorted((_timeline(key, held, traces, world) for key, held in by_key.items()), key=lambda t: t.group))


def _timeline(
    key: _Key, held: dict[int, GroupTrace], traces: dict[int, RankTrace], world: tuple[int, ...]
) -> GroupTimeline:
    name, members = key
    desc = min(g.desc for g in held.values())
    group = ProcessGroup(name, desc, members or _seen_members(name, desc, held, world), declared=members is not None)
    present = {
        r: held.get(r) or GroupTrace(name, desc, members, None, None, None, None) for r in group.ranks if r in traces
    }
    return GroupTimeline(
        group=group,
        traces=present,
        blind_after=_blind_after(present, traces),
        evicted=frozenset(r for r, g in present.items() if g.collectives is None and not traces[r].from_start),
        maybe=() if group.declared else _may_belong(group, held, traces, world),
    )


def _seen_members(name: str, desc: str, held: dict[int, GroupTrace], world: tuple[int, ...]) -> tuple[int, ...]:
    """Gloo's dumps do not say who belongs to a group: the default group is the world, of others only users are known."""
    return world if desc == "default_pg" or name == "0" else tuple(sorted(held))


def _may_belong(
    group: ProcessGroup, held: dict[int, GroupTrace], traces: dict[int, RankTrace], world: tuple[int, ...]
) -> tuple[int, ...]:
    """Every member has issued what one of them has done with all: a dump from the start that holds none of it is of no
    member. What other ranks are, nothing says.
    """
    used = any(_surely_issued(g) for g in held.values())
    outside = {r for r, t in traces.items() if used and t.from_start and not t.cut}
    return tuple(r for r in world if r not in group.ranks and r not in outside)


def _blind_after(present: dict[int, GroupTrace], traces: dict[int, RankTrace]) -> dict[int, int]:
    """Ranks that may have gone on after their dump's last op: it was cut, or it was taken before its peers' dumps."""
    known_by_peers = max((_surely_issued(g) for g in present.values()), default=0)
    blind: dict[int, int] = {}
    for rank, group in present.items():
        last = group.collectives.last_seq if group.collectives else 0
        if traces[rank].cut or (last < known_by_peers and not _may_be_evicted(group, traces[rank])):
            blind[rank] = last
    return blind


def _surely_issued(group: GroupTrace) -> int:
    """The highest seq that, done here, must have been issued by every member."""
    done = group.collectives.last_done if group.collectives else None
    return done.seq if done and all(s.op in SYNCHRONISING for s in done.signatures) else 0


def _may_be_evicted(group: GroupTrace, trace: RankTrace) -> bool:
    return group.collectives is None and not trace.from_start
