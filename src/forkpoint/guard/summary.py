"""Beats of many ranks -> one summary, in a tree -> is there a reason to look closer?

The lowest rank of every FAN_IN leads them; of the leaders, the lowest of every FAN_IN leads those; rank 0 leads all. Each
leader reads at most FAN_IN keys, whatever the size of the job, and a summary stays small. Groups whose members are all in
one branch and agree are not passed on.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from forkpoint.guard.messages import (
    Beat,
    Calls,
    GuardStore,
    RankAnswer,
    RankHealth,
    decode,
    encode,
    is_duration,
    require,
)
from forkpoint.guard.rank_side import leave_files
from forkpoint.live.stall import Stillness, has_stalled, stall_limit
from forkpoint.model.world import KnownRank, render_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Many ranks' beats as one value of bounded size: what the leader of a branch sends to the leader above it.

FAN_IN: Final = 64
"""Ranks, or branches, that one leader reads: 4,096 ranks are two levels, 262,144 three."""
_KEPT: Final = 32
"""Ranks named in a summary, at most: enough to act on, and bounded when a whole node fails."""
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
    """The shortest timeout of a group in which a rank waits; 0 if unknown."""
    waits: tuple[tuple[str, int], ...]
    """Where ranks wait: group and seq."""
    odd: tuple[OddRank, ...]
    """Ranks that ended, failed, or do not run."""
    silent: tuple[int, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    groups: dict[str, GroupSummary] = field(default_factory=dict[str, GroupSummary])
    steps: dict[str, TokensSeen] = field(default_factory=dict[str, TokensSeen])
    """By group, how many calls it had at the end of a step."""

    def __post_init__(self) -> None:
        require(self.still_s >= 0.0 and is_duration(self.timeout_s), "no length of time")


def summarise(beats: Sequence[Beat], calls: Sequence[Calls], silent: Iterable[int]) -> Summary:
    """`silent`: ranks whose beats no longer change. Their last beat counts, but not as running or waiting."""
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
    ended = {key: [(c.rank, {s: n[key] for s, n in c.steps.items() if key in n}) for c in calls] for key in counted}
    steps = {key: _compare(told, ("step", key), conflicts) for key, told in ended.items()}
    return replace(whole, groups=groups, steps=steps, conflicts=_one_per_place(conflicts))


def _compare(told: list[tuple[int, dict[int, int]]], of: tuple[str, str], conflicts: list[Conflict]) -> TokensSeen:
    """The union of what ranks sent. Most send what another sent before, which is checked first because it is fast."""
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
    # What a rank reports about itself counts more than what its neighbour sees of its process.
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
    """The union; where both have a place and differ there, that is a conflict. Only the first one matters."""
    apart = [at for at in one.keys() & other.keys() if one[at][0] != other[at][0]]
    if apart:
        at = min(apart)
        conflicts.append(Conflict(of[1], of[0], at, (one[at][1], other[at][1])))
    joined = other | one
    return {at: joined[at] for at in sorted(joined)[-_KEPT_SEQS:]}


def without_closed_groups(summary: Summary) -> Summary:
    """Keeps only what the leader above must still compare: groups with members elsewhere."""
    return replace(summary, groups={key: g for key, g in summary.groups.items() if g.seen < g.size})


# ---------------------------------------------------------------------------------------------------------------------
# The tree of leaders. In a job of up to FAN_IN ranks rank 0 alone reads.

SILENT_S: Final = 5.0
"""A guard reports every second or two; a starved one (its rank holds the GIL, the host swaps) may miss a few."""
_MISSED: Final = 10
"""In jobs of thousands of ranks guards look less often: a rank may miss this many looks before it counts as silent."""


def levels_led(rank: int, world_size: int) -> int:
    """How many levels this rank leads: 0 for most, all of them for rank 0."""
    levels, span = 0, FAN_IN
    while rank % span == 0 and (levels == 0 or span // FAN_IN < world_size):
        levels += 1
        span *= FAN_IN
    return levels


class Leader:
    def __init__(self, rank: int, world_size: int, guard_store: GuardStore, every_s: float) -> None:
        self._silent_s = max(SILENT_S, _MISSED * every_s)
        self.levels = levels_led(rank, world_size)
        self._rank = rank
        self._world_size = world_size
        self._guard_store = guard_store
        self._heard: dict[int, Stillness[int]] = {}
        self._calls: dict[int, Calls] = {}
        """The last calls that each rank sent."""

    def gather(self) -> Summary:
        """The summary of all ranks below this one, which is also sent to the leader above, if there is one."""
        members = range(self._rank, min(self._rank + FAN_IN, self._world_size))
        told = [decode(data, Beat) for data in self._guard_store.read([f"beat/{rank}" for rank in members])]
        # Anyone who reaches the store can write there: a beat counts only under its own rank's key.
        heard = [beat for rank, beat in zip(members, told, strict=True) if beat is not None and beat.rank == rank]
        self._hear_calls(heard)
        summary = summarise(heard, list(self._calls.values()), [b.rank for b in heard if self._is_silent(b)])
        span = FAN_IN
        for level in range(1, self.levels):
            self._guard_store.publish(f"summary/{level}/{self._rank}", encode(without_closed_groups(summary)))
            leaders = range(self._rank, min(self._rank + span * FAN_IN, self._world_size), span)
            data = self._guard_store.read([f"summary/{level}/{rank}" for rank in leaders])
            parts = [decode(part, Summary) for part in data]
            summary = merge([part for part in parts if part is not None])
            span *= FAN_IN
        if self._rank:
            self._guard_store.publish(f"summary/{self.levels}/{self._rank}", encode(without_closed_groups(summary)))
        return summary

    def _hear_calls(self, heard: list[Beat]) -> None:
        """Reads only what has changed."""
        new = [b.rank for b in heard if b.rank not in self._calls or self._calls[b.rank].reads != b.reads]
        for rank, data in zip(
            new, self._guard_store.read([f"calls/{rank}" for rank in new]) if new else (), strict=True
        ):
            calls = decode(data, Calls)
            if calls is not None and calls.rank == rank:
                self._calls[rank] = calls

    def _is_silent(self, beat: Beat) -> bool:
        now = time.monotonic()
        known = self._heard.setdefault(beat.rank, Stillness(beat.number, now))
        return known.see(beat.number, now) > self._silent_s and beat.state is RankHealth.RUNNING


# ---------------------------------------------------------------------------------------------------------------------
# Summary -> is there a reason to look closer? Time alone is a reason only after the stall threshold: a healthy job may
# be slow, uneven, checkpointing or evaluating.

QUIET_S: Final = 1.0
"""After this long without movement no rank is making progress: two looks would have seen it."""

_STRENGTH: Final = ("seq", "block", "step")
"""The most exact first."""


class SuspicionReason(StrEnum):
    MISMATCH = "mismatch"
    """Ranks reported different calls at one place."""
    STEP = "step"
    """Ranks had issued different numbers of calls at the end of the same step."""
    DEPARTED = "departed"
    """Others wait, and a rank ended, failed or does not run."""
    CYCLE = "cycle"
    """All ranks wait, but not at the same place."""
    STALL = "stall"
    """A rank waits, and nothing has moved for longer than the threshold."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    reason: SuspicionReason
    conflict: Conflict | None = None
    still_s: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the same suspicion at the next look."""
        conflict = self.conflict
        return (self.reason, (conflict.group, conflict.what, conflict.at) if conflict else None)


def suspect(
    summary: Summary, world_size: int, stall_s: float | None, settled: Collection[tuple[object, ...]] = ()
) -> Suspicion | None:
    """The strongest reason, if there is any. `settled`: keys of what was investigated already, which must not hide a stall."""
    return next((found for found in _reasons(summary, world_size, stall_s) if found.key not in settled), None)


def _reasons(summary: Summary, world_size: int, stall_s: float | None) -> Iterator[Suspicion]:
    if summary.conflicts:
        first = min(summary.conflicts, key=lambda c: (_STRENGTH.index(c.what), c.at))
        reason = SuspicionReason.STEP if first.what == "step" else SuspicionReason.MISMATCH
        yield Suspicion(reason, first, summary.still_s)
    if not summary.waiting or summary.still_s < QUIET_S:
        return
    if any(odd.state is not RankHealth.STOPPED for odd in summary.odd):
        yield Suspicion(SuspicionReason.DEPARTED, still_s=summary.still_s)
    # A process that is stopped by a signal or a debugger may be resumed: only time tells.
    if not summary.odd and summary.waiting == world_size and len(summary.waits) > 1:
        yield Suspicion(SuspicionReason.CYCLE, still_s=summary.still_s)
    if has_stalled(summary.still_s, stall_limit(stall_s, summary.timeout_s), waiting=bool(summary.waiting)):
        yield Suspicion(SuspicionReason.STALL, still_s=summary.still_s)


# ---------------------------------------------------------------------------------------------------------------------
# Answers -> a folder as a person would collect it, plus `ranks.json`: what the guards know about each rank.


def write_evidence(
    folder: Path, answers: Sequence[RankAnswer], summary: Summary, *, stalled: bool, moving: bool
) -> None:
    """`moving`: the job goes on, so its momentary stacks say nothing and are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for answer in answers:
        leave_files(answer, folder)
        if moving:
            (folder / f"stacks_rank_{answer.rank}.txt").unlink(missing_ok=True)
    (folder / "ranks.json").write_text(_describe(answers, summary, stalled=stalled))


def _describe(answers: Sequence[RankAnswer], summary: Summary, *, stalled: bool) -> str:
    odd = {o.rank: KnownRank(o.rank, o.state, o.says) for o in summary.odd}
    silent = [KnownRank(rank, "silent") for rank in summary.silent if rank not in odd]
    return render_ranks(
        max((answer.world_size for answer in answers), default=0),
        summary.still_s if summary.still_s < float("inf") else None,
        stalled=stalled,
        ranks=[*odd.values(), *silent],
        groups=sorted({group for answer in answers for group in answer.groups}),
        steps=[
            (group, step, answer.rank, calls)
            for answer in answers
            for step, counts in answer.steps.items()
            for group, calls in counts.items()
        ],
    )
