import pytest

import forkpoint
from cases import CASES
from forkpoint.model.picture import CellState
from forkpoint.report.pictures import groups
from pictures.drawn import cells, drawn
from small_jobs import SmallJob

LOGS = sorted((CASES / "0001" / "capture").glob("log_*"))


def test_the_group_of_the_divergence_comes_first() -> None:
    job = SmallJob(4, groups={"1": ("tp", (0, 1)), "2": ("tp", (2, 3))})
    job.op()
    job.op(group="1")
    job.op([2], group="2", done=False)

    picture = drawn(job.capture()).picture

    assert [(g.name, g.is_divergence) for g in picture.groups] == [("2", True), ("0", False), ("1", False)]


def test_a_channel_is_a_picture_of_its_two_ends() -> None:
    job = SmallJob(2)
    job.op()
    for _ in range(2):
        job.send(0, 1)
        job.recv(1, 0)
    job.send(0, 1, done=False)

    found = drawn(job.capture())
    channel = next(g for g in found.picture.groups if g.is_channel)

    assert (channel.desc, channel.ranks.tolist()) == ("default_pg 0->1", [0, 1])
    done, issued, absent = CellState.COMPLETED, CellState.ISSUED, CellState.NOT_REACHED
    assert cells(channel) == {0: [done, done, issued], 1: [done, done, absent]}


def test_groups_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS", 2)
    job = SmallJob(4, groups={"1": ("tp", (0, 1)), "2": ("tp", (2, 3))})
    for group in ("0", "1", "2"):
        job.op(group=group)

    picture = drawn(job.capture()).picture

    assert [g.name for g in picture.groups] == ["0", "1"]
    assert picture.groups_left_out == 1


def test_logs_alone_tell_how_far_ranks_came() -> None:
    picture = drawn(forkpoint.read([str(path) for path in LOGS])).picture

    (group,) = picture.groups
    assert group.ranks.tolist() == [0, 1, 2, 3]
    assert group.completed.tolist() == [15, 15, 15, 15]
    assert group.issued.tolist() == [15, 16, 16, 16]
    assert (group.first_seq, group.last_seq) == (0, -1)
