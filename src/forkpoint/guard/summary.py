"""Many ranks' beats as one value, small whatever their number: what a leader of a branch tells the leader above it.

Beats of 64 ranks become a summary; summaries of 64 branches become a summary. Groups whose members all lie in one
branch and agree end there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from forkpoint.guard.beat import Beat, Calls, RankHealth

FAN_IN: Final = 64
"""Ranks, or branches, that one leader reads: 4,096 ranks are two levels, 262,144 three."""
_KEPT: Final = 32
"""Ranks named in a summary, at most: enough to act on, and bounded when a whole node goes."""
_KEPT_SEQS: Final = 64
_WORDS: Final = (RankHealth.GONE, RankHealth.STOPPED, RankHealth.FINISHED, RankHealth.RAISED)

TokensSeen = dict[int, tuple[int, int]]
"""By seq (or block, or step): its token, and one of the ranks that sent it."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two ranks sent different tokens for the same place."""

    group: str
    what: str
    """`seq`, `block` or `step`."""
    at: int
    ranks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class OddRank:
    rank: int
    state: RankHealth
    says: str


@dataclass(frozen=True, slots=True)
class GroupSummary:
    size: int
    seen: int
    """Members that reported it."""
    tail: TokensSeen
    blocks: TokensSeen


@dataclass(frozen=True, slots=True)
class Summary:
    still_s: float
    """Since anything moved on any of them."""
    waiting: int
    timeout_s: float
    """The shortest timeout of a group in which somebody waits; 0 where none is known."""
    waits: tuple[tuple[str, int], ...]
    """Where ranks wait: group and seq."""
    odd: tuple[OddRank, ...]
    """Ranks that ended, failed, or do not run."""
    silent: tuple[int, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    groups: dict[str, GroupSummary] = field(default_factory=dict[str, GroupSummary])
    steps: dict[str, TokensSeen] = field(default_factory=dict[str, TokensSeen])
    """By group, how many calls it had at the end of a step."""


def summarise(beats: Sequence[Beat], calls: Sequence[Calls], silent: Iterable[int]) -> Summary:
    """`silent`: ranks whose beats stand still. What they told last counts, unless a neighbour saw their process end."""
    quiet = tuple(silent)
    whole = merge([_of(beat, is_silent=beat.rank in quiet) for beat in beats], quiet)
    conflicts: list[Conflict] = []
    groups = {
        key: replace(
            group,
            tail=_compare([(c.rank, c.tails.get(key, {})) for c in calls], ("seq", key), conflicts),
            blocks=_compare([(c.rank, c.blocks.get(key, {})) for c in calls], ("block", key), conflicts),
        )
        for key, group in whole.groups.items()
    }
    counted = {key for c in calls for counts in c.steps.values() for key in counts}
    steps = {key: _compare([(c.rank, _steps_of(key, c)) for c in calls], ("step", key), conflicts) for key in counted}
    return replace(whole, groups=groups, steps=steps, conflicts=_one_per_place(conflicts))


def _steps_of(key: str, calls: Calls) -> dict[int, int]:
    return {step: counts[key] for step, counts in calls.steps.items() if key in counts}


def _compare(told: list[tuple[int, dict[int, int]]], of: tuple[str, str], conflicts: list[Conflict]) -> TokensSeen:
    """The union of what ranks told. Nearly always one tells what another told before, and that is seen at once."""
    known: dict[int, int] = {}
    first: dict[int, int] = {}
    for rank, tokens in told:
        if tokens.items() <= known.items():
            continue
        apart = [at for at, token in tokens.items() if known.setdefault(at, token) != token]
        for at in tokens:
            first.setdefault(at, rank)
        if apart:
            at = min(apart)
            conflicts.append(Conflict(of[1], of[0], at, (first[at], rank)))
    return {at: (known[at], first[at]) for at in sorted(known)[-_KEPT_SEQS:]}


def _of(beat: Beat, *, is_silent: bool) -> Summary:
    waits = {(key, at) for key, g in beat.groups.items() if (at := g.waits_at) is not None}
    odd = [OddRank(beat.rank, beat.state, beat.says)] if beat.state is not RankHealth.RUNNING else []
    if beat.neighbour is not None and beat.neighbour_state is not RankHealth.RUNNING:
        odd.append(OddRank(beat.neighbour, beat.neighbour_state, f"seen by rank {beat.rank}"))
    running = beat.state is RankHealth.RUNNING and not is_silent
    waiting = beat.is_waiting and running
    return Summary(
        still_s=beat.still_s if running else float("inf"),
        waiting=int(waiting),
        timeout_s=min((g.timeout_s for g in beat.groups.values() if g.waits_at and g.timeout_s), default=0.0),
        waits=tuple(sorted(waits or {(f"({beat.calling})", 0)})) if waiting else (),
        odd=tuple(odd),
        groups={key: GroupSummary(g.size, 1, {}, {}) for key, g in beat.groups.items()},
    )


def merge(parts: Sequence[Summary], silent: tuple[int, ...] = ()) -> Summary:
    conflicts: list[Conflict] = [c for part in parts for c in part.conflicts]
    groups: dict[str, GroupSummary] = {}
    steps: dict[str, TokensSeen] = {}
    for part in parts:
        for key, told in part.groups.items():
            groups[key] = _join(groups[key], told, key, conflicts) if key in groups else told
        for key, told in part.steps.items():
            steps[key] = _join_told(steps.get(key, {}), told, ("step", key), conflicts)
    # What a rank says of itself counts more than what its neighbour sees of its process.
    odd = {o.rank: o for o in sorted((o for part in parts for o in part.odd), key=lambda o: _WORDS.index(o.state))}
    timeouts = [part.timeout_s for part in parts if part.timeout_s]
    return Summary(
        still_s=min((part.still_s for part in parts), default=float("inf")),
        waiting=sum(part.waiting for part in parts),
        timeout_s=min(timeouts, default=0.0),
        waits=tuple(sorted({wait for part in parts for wait in part.waits}))[:_KEPT],
        odd=tuple(odd[rank] for rank in sorted(odd))[:_KEPT],
        silent=tuple(sorted({*silent, *(r for part in parts for r in part.silent)}))[:_KEPT],
        conflicts=_one_per_place(conflicts),
        groups=groups,
        steps=steps,
    )


def _one_per_place(conflicts: list[Conflict]) -> tuple[Conflict, ...]:
    places = {(c.what, c.at, c.group): c for c in reversed(conflicts)}
    return tuple(places[place] for place in sorted(places))[:_KEPT]


def _join(one: GroupSummary, other: GroupSummary, key: str, conflicts: list[Conflict]) -> GroupSummary:
    return GroupSummary(
        size=one.size,
        seen=one.seen + other.seen,
        tail=_join_told(one.tail, other.tail, ("seq", key), conflicts),
        blocks=_join_told(one.blocks, other.blocks, ("block", key), conflicts),
    )


def _join_told(one: TokensSeen, other: TokensSeen, of: tuple[str, str], conflicts: list[Conflict]) -> TokensSeen:
    """The union; where both tell of one place and differ, that is a conflict. Of many the first is what matters."""
    apart = [at for at in one.keys() & other.keys() if one[at][0] != other[at][0]]
    if apart:
        at = min(apart)
        conflicts.append(Conflict(of[1], of[0], at, (one[at][1], other[at][1])))
    joined = other | one
    return {at: joined[at] for at in sorted(joined)[-_KEPT_SEQS:]}


def without_closed_groups(summary: Summary) -> Summary:
    """What the leader above must still compare: groups with members elsewhere."""
    return replace(summary, groups={key: g for key, g in summary.groups.items() if g.seen < g.size})
