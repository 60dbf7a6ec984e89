"""Capture -> Timeline: by absolute position, whatever is missing."""

from dataclasses import replace

from forkpoint.diverge.align import UNBOUNDED, align
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.op import Frame
from forkpoint.model.records import TraceRecord
from forkpoint.model.tables import SharedTables
from forkpoint.model.timeline import Gap
from forkpoint.model.traces import Traces
from forkpoint.traces.dump import decode
from forkpoint.traces.summary import summarise
from small_jobs import SmallJob


def test_ring_buffers_that_begin_at_different_places_are_aligned_by_absolute_seq() -> None:
    job = SmallJob(2)
    for _ in range(10):
        job.op()

    (group,) = align(job.capture(buffer={0: 10, 1: 4})).groups

    assert group.gap(1, 6) is Gap.EVICTED
    assert group.gap(1, 7) is None
    assert group.gap(0, 6) is None


def test_a_rank_without_a_dump_has_a_gap_of_its_own_kind() -> None:
    job = SmallJob(3)
    job.op()
    job.op(ranks=[0], done=False)

    (group,) = align(job.capture(ranks=[0, 1])).groups

    assert group.gap(1, 2) is Gap.NOT_REACHED
    assert group.gap(2, 2) is Gap.NO_DUMP


def test_groups_of_one_name_with_different_members_are_two_groups() -> None:
    left, right = (SmallJob(4, groups={"1": ("tp", pair)}) for pair in ((0, 1), (2, 3)))
    tables = SharedTables()
    for job in (left, right):
        job.op(group="1")
    records = (left.record(0, tables), left.record(1, tables), right.record(2, tables), right.record(3, tables))

    timeline = align(Capture(Traces.of(records, tables), tables.build()))

    assert [g.group.ranks for g in timeline.groups if g.group.name == "1"] == [(0, 1), (2, 3)]


def test_a_cut_dump_says_nothing_about_what_came_after_the_cut() -> None:
    job = SmallJob(2)
    for _ in range(6):
        job.op()
    data, tables = job.dump(1), SharedTables()
    cut = TraceRecord(1, "cut", summarise(decode(data[: len(data) * 2 // 3], "cut"), 1, tables))

    timeline = align(Capture(Traces.of((job.record(0, tables), cut), tables), tables.build()))

    assert timeline.blind == {1}
    assert timeline.groups[0].gap(1, 6) is Gap.NO_DUMP


def test_a_dump_taken_earlier_than_its_peers_is_not_behind() -> None:
    job = SmallJob(3)
    for _ in range(5):
        job.op()
    job.entries[2] = job.entries[2][:3]

    timeline = align(job.capture())

    assert timeline.blind == {2}
    assert timeline.groups[0].gap(2, 5) is Gap.NO_DUMP


def test_messages_are_paired_by_channel_with_group_ranks_translated() -> None:
    job = SmallJob(6, groups={"7": ("pp", (1, 3, 5))})
    job.send(1, 3, group="7")
    job.recv(3, 1, group="7")

    (channel,) = align(job.capture()).channels

    assert (channel.source, channel.destination) == (1, 3)
    assert channel.counted


def test_a_rank_of_which_only_an_empty_log_is_left_belongs_to_the_job() -> None:
    heard = SmallJob(2).capture((), logs=(("log_0", 0), ("log_1", 1)))

    assert align(heard).world == (0, 1)
    assert align(replace(heard, empty_logs=(("log_2", 2),))).world == (0, 1, 2)


def test_ranks_are_seen_by_dumps_logs_and_stacks_together() -> None:
    """At most one more may exist where every rank up to the highest was seen somehow; without rank 1 any number may."""
    job = SmallJob(4, lib="gloo")
    job.op([0])
    stack = LiveStack(3, "stacks_3", 1, (Frame("step", "/train/train.py", 10),))
    seen = job.capture([0], stacks=(stack,), logs=(("log_1", 1),))

    assert align(replace(seen, empty_logs=(("log_2", 2),))).unseen == 1
    assert align(seen).unseen == UNBOUNDED
    assert align(replace(seen, empty_logs=(("log_2", 2),), logs=())).unseen == UNBOUNDED
