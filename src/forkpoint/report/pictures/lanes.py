"""One lane per cohort: what its ranks did in the slots around the divergence; and which ranks arrive last."""

from collections import Counter
from dataclasses import replace
from typing import Self

from msgspec import Struct

from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.diverge.slots import token_at
from forkpoint.judge.facts.stragglers import FEWEST, find_arrivals
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Cohort, Divergence, Incident
from forkpoint.model.op import OpState
from forkpoint.model.picture import CellState, Lane, LaneCell, LastArrivals
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Verdict
from forkpoint.report.pictures.groups import cell_of, letters_of

MAX_LANES = 6
_BEFORE, _AFTER = 6, 5
_MAX_SLOTS = 24
"""Limit of slots if the divergence became visible later than it began: both are shown."""
_MAX_SIZES = 2
_GAPS = {
    Gap.NOT_REACHED: (CellState.NOT_REACHED, "not reached"),
    Gap.EVICTED: (CellState.UNKNOWN, "no longer in its ring buffer"),
    Gap.NO_DUMP: (CellState.UNKNOWN, "no dump shows it"),
}


class _Scene(Struct, frozen=True):
    """The group or channel of the divergence. Neither: it is known only from logs."""

    divergence: Divergence
    timeline: Timeline
    group: GroupTimeline | None
    channel: Channel | None

    @classmethod
    def of(cls, divergence: Divergence, timeline: Timeline) -> Self:
        groups = (g for g in timeline.groups if divergence.channel is None and g.group == divergence.group)
        channels = (
            c
            for c in timeline.channels
            if (c.source, c.destination) == divergence.channel and c.group == divergence.group
        )
        return cls(divergence, timeline, next(groups, None), next(channels, None))

    def track(self, rank: int) -> Track | None:
        if self.group is not None:
            return self.group.track(rank)
        return self.channel.end(rank) if self.channel else None

    def name(self, rank: int, op: str) -> str:
        """The two ends of a message share an entry in the tables; this gives each end its own name."""
        return op if self.channel is None else "recv" if rank == self.channel.destination else "send"

    def gap(self, rank: int, seq: int) -> Gap:
        """Why the rank has no op there."""
        if self.group is not None:
            return self.group.gap(rank, seq) or Gap.NO_DUMP
        track = self.track(rank)
        if track is not None and seq < track.first_seq:
            return Gap.EVICTED
        return Gap.NOT_REACHED if rank in self.timeline.positions else Gap.NO_DUMP


class _Cell(Struct, frozen=True):
    """A cell before it is compared with those of the other lanes."""

    cell: LaneCell
    call: tuple[int | None, int | None] | None = None
    """Tokens of the call and of the call site."""


def draw_lanes(timeline: Timeline, verdict: Verdict) -> tuple[Lane, ...]:
    divergence = verdict.divergence
    if divergence is None:
        return ()
    order = _Scene.of(divergence, timeline)
    cohorts = sorted(enumerate(divergence.cohorts), key=lambda item: (-len(item[1].ranks), item[0]))[:MAX_LANES]
    speakers = [_speaker(cohort, order) for _, cohort in cohorts]
    slots = _slots(order, [track for _, track in speakers])
    rows = [
        [_tell(seq, rank, track, order) or _by_cohort(seq, cohort, divergence) for seq in slots]
        for (_, cohort), (rank, track) in zip(cohorts, speakers, strict=True)
    ]
    weights = [len(cohort.ranks) for _, cohort in cohorts]
    suspect = [not set(cohort.ranks).isdisjoint(verdict.suspects) for _, cohort in cohorts]
    odd = [_odd(column, weights, suspect, divergence) for column in zip(*rows, strict=True)]
    return tuple(
        Lane(
            cohort=index,
            role=cohort.role,
            ranks=cohort.ranks,
            suspect=suspect[lane],
            rank=speakers[lane][0],
            cells=tuple(replace(one.cell, odd=odd[at][lane]) for at, one in enumerate(rows[lane])),
        )
        for lane, (index, cohort) in enumerate(cohorts)
    )


def _speaker(cohort: Cohort, order: _Scene) -> tuple[int, Track | None]:
    """The first rank of the cohort that recorded anything here, which stands for all."""
    tracks = ((rank, order.track(rank)) for rank in cohort.ranks)
    return next(((rank, track) for rank, track in tracks if track), (cohort.ranks[0], None))


def _slots(order: _Scene, tracks: list[Track | None]) -> range:
    divergence = order.divergence
    known = [s for s in (divergence.seq, divergence.first_visible_seq, divergence.hang_seq) if s is not None]
    if not known:
        return range(0)
    held = [track for track in tracks if track]
    first = max(min(known) - _BEFORE, min([*(t.first_seq for t in held), *known]))
    last = min(max(known) + _AFTER, max([*(t.last_seq for t in held), *known]))
    return range(first, min(last + 1, first + _MAX_SLOTS))


def _tell(seq: int, rank: int, track: Track | None, order: _Scene) -> _Cell | None:
    """None: no dump has this group at all."""
    if order.group is None and order.channel is None:
        return None
    tables = order.timeline.tables
    held = track is not None and track.first_seq <= seq <= track.last_seq
    signature, frames = issued(track, seq, tables) if track and held else (None, None)
    if track is None or signature is None:
        state, note = _GAPS[order.gap(rank, seq)] if not held else (CellState.UNKNOWN, "not in its dump")
        return _Cell(LaneCell(seq, None, "", "", state, odd=False, note=note))
    name = order.name(rank, signature.op)
    op = frontier_op(track, seq)
    done = track.last_done is not None and seq <= track.last_done.seq
    state = cell_of(op) if op else CellState.COMPLETED if done else CellState.ISSUED
    word = op.state if op else "completed" if done else "issued"
    cell = LaneCell(
        seq=seq,
        op=name,
        letters=letters_of(name),
        sizes=_sizes(signature.input_sizes or signature.output_sizes),
        state=state,
        odd=False,
        note=_note(word, user_place(frames)),
    )
    return _Cell(cell, (token_at(track, seq, tables), token_at(track, seq, tables, "stack")))


def _by_cohort(seq: int, cohort: Cohort, divergence: Divergence) -> _Cell:
    """If only logs are known: just the slot of the divergence."""
    if seq != divergence.first_visible_seq or cohort.op is None:
        here = seq == divergence.first_visible_seq
        note = cohort.where if here and cohort.where else "nothing was recorded"
        return _Cell(LaneCell(seq, None, "", "", CellState.UNKNOWN, odd=False, note=note))
    done = cohort.state is OpState.COMPLETED
    state = CellState.COMPLETED if done else CellState.ISSUED
    note = _note(cohort.state or "issued", user_place(cohort.stack))
    cell = LaneCell(seq, cohort.op, letters_of(cohort.op), _sizes(cohort.sizes), state, odd=False, note=note)
    return _Cell(cell, (hash((cohort.op, cohort.sizes, cohort.dtypes)), None))


def _note(state: str, place: str | None) -> str:
    return f"{state}, {place}" if place else state


def _sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    shown = ",".join(str(list(size)) for size in sizes[:_MAX_SIZES])
    return f"{shown},... ({len(sizes)} tensors)" if len(sizes) > _MAX_SIZES else shown


def _odd(column: tuple[_Cell, ...], weights: list[int], suspect: list[bool], divergence: Divergence) -> list[bool]:
    """Which lanes stand out in a slot: those that did not do what most did, and suspects in another state."""
    waits = column[0].cell.seq in (divergence.first_visible_seq, divergence.hang_seq)
    keys = [_key(one, divergence, waits=waits, is_suspect=s) for one, s in zip(column, suspect, strict=True)]
    odd = _not_usual(keys, weights, suspect)
    if waits:
        others = {one.cell.state for one, s in zip(column, suspect, strict=True) if not s}
        for lane, one in enumerate(column):
            odd[lane] |= suspect[lane] and bool(others) and one.cell.state not in others
    return odd


def _not_usual(keys: list[object], weights: list[int], suspect: list[bool]) -> list[bool]:
    """Lanes outside the majority; without a majority the suspects; without suspects all."""
    votes: Counter[object] = Counter()
    for key, weight in zip(keys, weights, strict=True):
        if key is not None:
            votes[key] += weight
    if len(votes) < 2:
        return [False] * len(keys)
    (usual, most), (_, second) = votes.most_common(2)
    if most > second:
        return [key is not None and key != usual for key in keys]
    accused = [is_suspect and key is not None for is_suspect, key in zip(suspect, keys, strict=True)]
    return accused if any(accused) else [key is not None for key in keys]


def _key(one: _Cell, divergence: Divergence, *, waits: bool, is_suspect: bool) -> object:
    """What a lane did in a slot, for comparison with other lanes; None: it is not compared.

    Absence counts only if others wait. Missing evidence does not count, unless the verdict names the rank. The call site
    counts from the fork on.
    """
    if one.call is None:
        return "absent" if waits and (is_suspect or one.cell.state is CellState.NOT_REACHED) else None
    match, stack = one.call
    forked = divergence.seq is not None and one.cell.seq >= divergence.seq
    return match, stack if forked else None


MAX_ROWS = 40
MAX_LAST = 4
_NS_PER_MS = 1_000_000


def draw_arrivals(incident: Incident) -> tuple[LastArrivals, ...]:
    """Call sites at which a group met often enough to draw conclusions; those with a straggler first."""
    found = [one for one in find_arrivals(incident) if one.met >= FEWEST]
    return tuple(
        LastArrivals(
            group=one.group.name,
            desc=one.group.desc,
            host=one.host,
            compared=len(one.ranks),
            site=one.site,
            met=one.met,
            last=tuple((late.rank, late.times, late.usual_ns / _NS_PER_MS) for late in one.last[:MAX_LAST]),
            odd=one.straggler is not None,
        )
        for one in found[:MAX_ROWS]
    )
