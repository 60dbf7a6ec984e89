"""The heat map says of every cell what the timeline says, however rows and blocks are shared."""

from collections import Counter

import pytest

import verdicts
from cases import Case, load_cases
from forkpoint.diverge.align import align
from forkpoint.diverge.cohorts import frontier_op
from forkpoint.diverge.slots import token_at
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Incident
from forkpoint.model.picture import NO_OP, CellState
from forkpoint.model.timeline import Gap, GroupTimeline
from forkpoint.report.pictures import groups
from forkpoint.report.pictures.groups import OpNames, cell_of
from looping import for_each
from pictures.drawn import cells, drawn, drawn_case
from small_jobs import SmallJob

C, I, N, D, U = (  # noqa: E741 one letter per cell keeps rows readable
    CellState.COMPLETED,
    CellState.ISSUED,
    CellState.NOT_REACHED,
    CellState.DIFFERS,
    CellState.UNKNOWN,
)


def slowly(group: GroupTimeline, rank: int, seq: int, tables: Tables) -> CellState:
    """Cell by cell, as nobody would do it for 10,000 ranks."""
    gap = group.gap(rank, seq)
    if gap is not None:
        return N if gap is Gap.NOT_REACHED else U
    tokens = {r: t for r in group.traces if (track := group.track(r)) and (t := token_at(track, seq, tables))}
    if rank not in tokens:
        return U
    votes = Counter(tokens.values()).most_common()
    usual = votes[0][0] if len(votes) == 1 or votes[0][1] > votes[1][1] else None
    if tokens[rank] != usual:
        return D
    track = group.track(rank)
    assert track is not None
    op = frontier_op(track, seq)
    done = track.last_done is not None and seq <= track.last_done.seq
    return cell_of(op) if op else C if done else I


@for_each("case", load_cases(), ids=lambda case: case.number, one_in=10)
def test_every_cell_of_a_recorded_incident_is_what_its_timeline_says(case: Case) -> None:
    found = drawn_case(case.number)
    timeline = found.incident.timeline
    by_key = {(g.group.name, g.group.ranks): g for g in timeline.groups}

    for picture in found.picture.groups:
        if picture.is_channel or not timeline.traces:
            continue
        group = by_key[picture.name, tuple(picture.ranks.tolist())]
        seqs = range(picture.first_seq, picture.last_seq + 1)
        assert cells(picture) == {r: [slowly(group, r, s, timeline.tables) for s in seqs] for r in group.group.ranks}


def test_a_rank_that_is_behind_has_not_reached_what_others_issued() -> None:
    job = SmallJob(3)
    job.op()
    job.op()
    job.op([0, 1], done=False)

    (group,) = drawn(job.capture()).picture.groups

    assert cells(group) == {0: [C, C, I], 1: [C, C, I], 2: [C, C, N]}
    assert group.completed.tolist() == [2, 2, 2]
    assert group.issued.tolist() == [3, 3, 2]


def test_ranks_that_did_the_same_share_one_row() -> None:
    job = SmallJob(16)
    for _ in range(300):
        job.op()
    job.op(range(15), done=False)

    (group,) = drawn(job.capture()).picture.groups

    assert group.heat.row_of.tolist() == [0] * 15 + [1]
    assert group.heat.run_code.tolist() == [C, I, C, N]


def test_what_the_ring_buffer_lost_and_what_no_dump_shows_is_not_known() -> None:
    job = SmallJob(3)
    for _ in range(4):
        job.op()

    (group,) = drawn(job.capture(ranks=[0, 1], buffer={0: 2})).picture.groups

    assert cells(group) == {0: [U, U, C, C], 1: [C, C, C, C], 2: [U, U, U, U]}
    assert group.issued.tolist() == [4, 4, -1]


def test_the_minority_differs() -> None:
    job = SmallJob(3)
    job.op()
    job.op([0, 2], size=8, done=False)
    job.op([1], size=9, done=False)

    (group,) = drawn(job.capture()).picture.groups

    assert cells(group) == {0: [C, I], 1: [C, D], 2: [C, I]}


def test_without_a_majority_all_differ() -> None:
    job = SmallJob(2)
    job.op([0], size=8, done=False)
    job.op([1], size=9, done=False)

    (group,) = drawn(job.capture()).picture.groups

    assert cells(group) == {0: [D], 1: [D]}


def test_columns_are_named_by_what_most_called() -> None:
    job = SmallJob(3)
    job.op(name="broadcast")
    job.op([0, 1], name="all_reduce", done=False)
    job.op([2], name="_all_gather_base", done=False)

    picture = drawn(job.capture()).picture

    assert [(picture.ops[i].name, picture.ops[i].letters) for i in picture.groups[0].heat.op] == [
        ("broadcast", "BC"),
        ("all_reduce", "AR"),
    ]


def test_a_column_that_nobody_recorded_has_no_name() -> None:
    job = SmallJob(2)
    job.op(collective_seq_id=1)
    job.op(collective_seq_id=3)

    (group,) = drawn(job.capture()).picture.groups

    assert group.heat.op.tolist() == [0, NO_OP, 0]
    assert cells(group)[0] == [C, U, C]


def test_only_the_last_columns_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_COLUMNS", 10)
    job = SmallJob(2)
    for _ in range(300):
        job.op()
    job.op([0], done=False)

    (group,) = drawn(job.capture()).picture.groups

    assert (group.first_seq, group.last_seq) == (292, 301)
    assert cells(group) == {0: [C] * 9 + [I], 1: [C] * 9 + [N]}


def test_a_divergence_before_the_last_columns_is_drawn_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_COLUMNS", 100)
    job = SmallJob(3)
    for step in range(300):
        job.op([0, 1], size=4)
        job.op([2], size=5 if step == 149 else 4)

    found = drawn(job.capture())
    (group,) = found.picture.groups

    assert found.verdict.divergence
    assert found.verdict.divergence.seq == 150
    assert group.first_seq <= 150 <= group.last_seq
    assert group.last_seq - group.first_seq < 100


def test_rows_that_hardly_compress_are_cut_to_their_last_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_RUNS", 100)
    job = SmallJob(2)
    for step in range(200):
        job.op([0], size=1)
        job.op([1], size=1 + step % 2)

    (group,) = drawn(job.capture()).picture.groups

    assert len(group.heat.run_code) <= 100
    assert group.last_seq == 200


@pytest.mark.parametrize("last", [2**40, 2**62])
def test_a_hostile_sequence_number_costs_no_more_than_others(last: int) -> None:
    job = SmallJob(2)
    job.op()
    job.op([0], collective_seq_id=last, done=False)
    capture = job.capture()
    incident = Incident.of(capture, align(capture), ())

    (group,), _ = groups.draw_groups(incident, verdicts.INCONCLUSIVE, OpNames())

    assert group.last_seq == last
    assert cells(group)[0][-1] == I
    assert len(group.heat.op) == groups.MAX_COLUMNS
