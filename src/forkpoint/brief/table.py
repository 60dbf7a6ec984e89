"""One group as a table: a row per seq, in which ranks that did the same share a cell; shows the last row that agrees and the
first that differs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.brief.calls import members_alike, tell_divergence, tell_slot
from forkpoint.brief.case import (
    MAX_CHARACTERS,
    Case,
    Fact,
    QuestionRefused,
    answer,
    fact,
    find_group,
    known_seq,
    lines_around,
    name_group,
)
from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.diverge.slots import differing_seqs
from forkpoint.model.frames import user_place
from forkpoint.model.op import SIZES_FREE
from forkpoint.model.timeline import Gap, GroupTimeline
from forkpoint.model.world import name_ranks

_USUAL, _MAX_AROUND = 3, 10
_RANGES = 4
_OWN_VOLUMES = 256
"""Largest group for which each member's own part of an all_to_all is shown."""
_GAP_WORDS = {
    Gap.NOT_REACHED: "not reached",
    Gap.EVICTED: "unknown (no longer in the ring buffer)",
    Gap.NO_DUMP: "unknown (no dump, or it ends before)",
}


def show_table(
    case: Case, named: str | None = None, at: int | None = None, rows: int | None = None, *, fork: bool = True
) -> Sequence[Fact]:
    """`fork`: also how ranks diverge in this group."""
    group = find_group(case, named) if named is not None else _usual_group(case)
    alike = find_alike(case, group)
    recorded = known_seq(group, at) if at is not None else None
    seq = at if at is not None else _usual_seq(case, group, alike)
    around = lines_around(rows, _USUAL, _MAX_AROUND)
    first, last = (recorded or known_seq(group, seq))[0], (recorded or known_seq(group, seq))[-1]
    shown = range(max(first, seq - around), max(seq, min(last, seq + around)) + 1)
    return answer(
        (*_head(case, group, alike, fork=fork), *_rows(case, group, shown, alike)), "ask for fewer rows around"
    )


def _usual_group(case: Case) -> GroupTimeline:
    fork, groups = case.verdict.divergence, case.incident.timeline.groups
    if not groups:
        raise QuestionRefused("no dump was read: there is no table; ask threads, log_lines or files")
    found = [g for g in groups if fork is not None and g.group == fork.group]
    return found[0] if found else max(groups, key=lambda g: (_is_open(g), len(g.group.ranks)))


def _is_open(group: GroupTimeline) -> bool:
    return any(track.first_active for _, rank in group.kinds if (track := group.track(rank)))


def _usual_seq(case: Case, group: GroupTimeline, alike: "Alike") -> int:
    fork = case.verdict.divergence
    if fork is not None and fork.group == group.group and fork.channel is None:
        seq = next((s for s in (fork.seq, fork.first_visible_seq, fork.hang_seq) if s is not None), None)
        if seq is not None:
            return seq
    return alike.first_differing or alike.furthest


# ---------------------------------------------------------------------------------------------------------------------
# Where members start to differ.


@dataclass(frozen=True, slots=True)
class Alike:
    last: int | None
    """The last row in which all members with a dump recorded the same; None if there is none."""
    first_differing: int | None
    furthest: int


def find_alike(case: Case, group: GroupTimeline) -> Alike:
    """Examines one member for each kind of track."""
    tracks = {rank: track for _, rank in group.kinds if (track := group.track(rank))}
    if not tracks:
        return Alike(None, None, 0)
    furthest = max(track.last_seq for track in tracks.values())
    parted = differing_seqs(tracks.values(), case.incident.timeline.tables)
    behind = [track.last_seq + 1 for rank, track in tracks.items() if group.gap(rank, furthest) is Gap.NOT_REACHED]
    judged = [
        d.seq
        for d in case.incident.divergences
        if d.group == group.group and d.channel is None and d.seq is not None and d.seq <= furthest
    ]
    found = [*(parted[:1].tolist()), *behind, *judged]
    if any(group.track(rank) is None and group.gap(rank, furthest) is Gap.NOT_REACHED for rank in group.traces):
        found.append(1)
    first = min(found, default=None)
    held_by_all = max(track.first_seq for track in tracks.values())
    last = furthest if first is None else first - 1
    return Alike(last if last >= held_by_all else None, first, furthest)


def _head(case: Case, group: GroupTimeline, alike: Alike, *, fork: bool) -> Iterator[Fact]:
    name = name_group(group.group, case.incident.timeline)
    agreeing = f"the last row in which all agree is seq {alike.last}" if alike.last is not None else "no row agrees"
    differing = (
        f"the first that differs is seq {alike.first_differing}"
        if alike.first_differing is not None
        else "none differs among dumps"
    )
    found = next((d for d in case.incident.divergences if d.group == group.group and d.channel is None), None)
    how = f"; {tell_divergence(found)}" if found is not None and fork else ""
    yield fact(case, name, f"of {name_ranks(group.group.ranks, _RANGES)}; {agreeing}; {differing}{how}")
    if group.maybe:
        yield fact(case, name, f"no dump says whether {name_ranks(group.maybe, _RANGES)} belong to it")


# ---------------------------------------------------------------------------------------------------------------------
# Rows.


def _rows(case: Case, group: GroupTimeline, seqs: range, alike: Alike) -> Iterator[Fact]:
    name, classes = name_group(group.group, case.incident.timeline), members_alike(group, case.incident.timeline)
    for seq in seqs:
        cells = _cells(case, group, seq, classes)
        mark = {alike.last: " (last alike)", alike.first_differing: " (first that differs)"}.get(seq, "")
        told = [f"{name_ranks(ranks, _RANGES)}: {says}" for says, ranks in cells]
        where, whole = f"{name} seq {seq}{mark}", " | ".join(told)
        yield from (fact(case, where, one) for one in ([whole] if len(whole) < MAX_CHARACTERS else told))


def _cells(case: Case, group: GroupTimeline, seq: int, classes: list[list[int]]) -> list[tuple[str, list[int]]]:
    """(text, ranks), most ranks first."""
    told: dict[str, list[int]] = {}
    for members in classes:
        for ranks in _with_own_volumes(case, group, seq, members):
            told.setdefault(_tell_member(case, group, ranks[0], seq), []).extend(ranks)
    return sorted(told.items(), key=lambda item: (-len(item[1]), item[1]))


def _with_own_volumes(case: Case, group: GroupTimeline, seq: int, members: list[int]) -> list[list[int]]:
    """Splits members into single ranks if each may have sent and received a different amount."""
    track = group.track(members[0])
    if track is None or len(group.group.ranks) > _OWN_VOLUMES or frontier_op(track, seq) is not None:
        return [members]
    signature, _ = issued(track, seq, case.incident.timeline.tables)
    is_free = signature is not None and signature.op in SIZES_FREE
    return [[rank] for rank in members] if is_free else [members]


def _tell_member(case: Case, group: GroupTimeline, rank: int, seq: int) -> str:
    gap, track = group.gap(rank, seq), group.track(rank)
    if gap is not None or track is None:
        return _GAP_WORDS[gap or Gap.NO_DUMP]
    tables, op = case.incident.timeline.tables, frontier_op(track, seq)
    volumes = group.traces[rank].volumes if len(group.group.ranks) <= _OWN_VOLUMES else None
    call = tell_slot(track, seq, tables, volumes) or "not recorded, although calls around it are"
    place = user_place(op.stack if op is not None else issued(track, seq, tables)[1])
    return f"{call} at {place}" if place else call
