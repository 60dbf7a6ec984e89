"""One timeline over all evidence, ordered only where clocks compare."""

import random
from dataclasses import replace
from pathlib import Path

import forkpoint
from cases import CASES, verdict_of
from forkpoint.judge.telling.moments import MAX_MOMENTS
from forkpoint.model.verdict import NOT_DATED, Moment, Source
from looping import for_each
from written_jobs import HEADER, TIMEOUT_S, WrittenJob, glog, xid

NEW_YEAR = 1_798_761_600
"""The first second of 2027."""
HOURS = 3600


def told(moments: tuple[Moment, ...], clock: str | None = None) -> list[tuple[str, tuple[int, ...]]]:
    return [(m.kind, m.ranks) for m in moments if clock is None or m.clock == clock]


def hang(folder: Path, **changed) -> WrittenJob:
    """Rank 3 does not come; the others time out."""
    job = WrittenJob(folder, **changed)
    job.write_dumps((0, 1, 2, 3), waiting=(0, 1, 2))
    for rank in range(4):
        job.write_log(rank, times_out=rank != 3)
    return job


IN_ORDER = [
    ("last issued", (3,)),
    ("completed", (0, 1, 2, 3)),
    ("issued", (0, 1, 2)),
    ("watchdog-timeout", (0, 1, 2)),
    ("dumped", (0, 1, 2)),
]


@for_each("zone", [0, 2 * HOURS, -8 * HOURS, 5 * HOURS + 1800, 5 * HOURS + 2700])
def test_dumps_and_logs_of_any_time_zone_are_one_timeline(tmp_path, zone) -> None:
    job = hang(tmp_path, zone_s=zone)

    moments = job.diagnose().moments

    assert told(moments) == IN_ORDER
    assert {m.clock for m in moments} == {"UTC"}
    watchdog = next(m for m in moments if m.kind == "watchdog-timeout")
    assert watchdog.when == glog(job.hang_s + TIMEOUT_S + zone)
    assert watchdog.utc == "2026-11-15T01:28:26Z"


@for_each("start", [NEW_YEAR - 610, NEW_YEAR - 599, NEW_YEAR - 300, NEW_YEAR - 24 * HOURS - 610])
@for_each("zone", [0, HOURS])
def test_midnight_and_new_year_do_not_break_the_order(tmp_path, start, zone) -> None:
    moments = hang(tmp_path, start_s=start, zone_s=zone).diagnose().moments

    assert told(moments) == IN_ORDER


def test_new_year_does_not_break_the_order_of_logs_alone(tmp_path) -> None:
    job = WrittenJob(tmp_path, start_s=NEW_YEAR - 605)
    late = HEADER.format(rank=0, stamp=glog(NEW_YEAR - 3), line=1) + "[Rank 0] First PG on this rank to signal dumping."
    job.write_log(0)
    job.write_log(1, late.replace("rank0", "rank1").replace("Rank 0", "Rank 1"), times_out=False)

    assert [m.kind for m in job.diagnose().moments] == ["dump-signal", "watchdog-timeout", "dumped"]


def test_hosts_with_one_clock_are_one_timeline(tmp_path) -> None:
    moments = hang(tmp_path, hosts=("node-1", "node-2")).diagnose().moments

    assert told(moments) == IN_ORDER
    assert len({m.clock for m in moments}) == 1


@for_each("ahead", [300, -300, 40])
def test_hosts_whose_clocks_differ_are_told_apart_and_not_ordered(tmp_path, ahead) -> None:
    moments = hang(tmp_path, hosts=("node-1", "node-2"), skew_s={"node-2": ahead}).diagnose().moments
    clocks = list(dict.fromkeys(m.clock for m in moments))

    assert len(clocks) > 1
    assert told(moments, clocks[0]) == [
        ("completed", (0, 1)),
        ("issued", (0, 1)),
        ("watchdog-timeout", (0, 1)),
        ("dumped", (0, 1)),
    ]
    assert all(m.utc is None for m in moments if m.clock != clocks[0])
    assert all(set(m.ranks) <= {2, 3} for m in moments if m.clock != clocks[0])


@for_each("ahead", [0, 3, 7, 40, 300])
def test_skew_between_hosts_never_reorders_one_host(tmp_path, ahead) -> None:
    moments = hang(tmp_path, hosts=("node-1", "node-2"), skew_s={"node-2": ahead}).diagnose().moments

    for rank in range(3):
        own = [kind for kind, ranks in told(moments) if rank in ranks and kind != "completed"]
        assert own == ["issued", "watchdog-timeout", "dumped"]


def test_a_line_without_a_time_came_before_the_next_that_has_one(tmp_path) -> None:
    job = WrittenJob(tmp_path)
    job.write_dumps((0, 1, 2), waiting=(0, 1, 2))
    later = HEADER.format(rank=3, stamp=glog(job.hang_s + 2), line=1566)
    raised = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/train/train.py", line 1, in f\n[rank3]: ValueError: bad'
    job.write_log(3, raised, later + "[PG ID 0 PG GUID 0 Rank 3] ProcessGroupNCCL destructor entered.", times_out=False)
    for rank in range(3):
        job.write_log(rank)

    moment = next(m for m in job.diagnose().moments if m.kind == "exception")

    assert (moment.bound, moment.when, moment.ranks) == (True, glog(job.hang_s + 2), (3,))
    assert moment.utc == "2026-11-15T01:28:08Z"


def test_kernel_messages_stand_between_what_ranks_did(tmp_path) -> None:
    job = hang(tmp_path)
    job.write_kernel(xid(3, 79), second=job.hang_s + 5)

    kinds = [m.kind for m in job.diagnose().moments]

    assert kinds == ["last issued", "completed", "issued", "xid", "watchdog-timeout", "dumped"]


def test_seconds_since_boot_compare_with_nothing(tmp_path) -> None:
    job = hang(tmp_path)
    job.write_kernel(xid(3, 79))

    moment = next(m for m in job.diagnose().moments if m.source is Source.KERNEL)

    assert (moment.clock, moment.when, moment.utc) == ("node-1: seconds since boot", "1234", None)


def test_what_nothing_dates_comes_last_and_in_no_order(tmp_path) -> None:
    moments = verdict_of("0001").moments

    assert [m.source for m in moments if m.clock == NOT_DATED] == [Source.STACK, Source.STACK]
    assert moments[-1].clock == NOT_DATED


@for_each("number", ["0001", "0003", "0012", "0032"])
def test_file_order_does_not_change_the_moments(number) -> None:
    paths = sorted(str(p) for p in (CASES / number / "capture").iterdir())
    capture = forkpoint.read(paths)
    usual = forkpoint.diagnose(capture).moments

    for seed in range(4):
        shuffled = random.Random(seed).sample(paths, len(paths))
        assert forkpoint.diagnose(forkpoint.read(shuffled)).moments == usual
        events = tuple(random.Random(seed).sample(capture.events, len(capture.events)))
        assert set(forkpoint.diagnose(replace(capture, events=events)).moments) == set(usual)


def test_many_ranks_that_say_the_same_are_one_moment_and_the_number_is_bounded(tmp_path) -> None:
    job = WrittenJob(tmp_path, world=8)
    job.write_dumps(tuple(range(8)))
    for rank in range(8):
        errors = (f"[rank{rank}]: RuntimeError: CUDA error: number {rank} {n}" for n in range(60))
        job.write_log(rank, *errors)

    moments = job.diagnose().moments

    assert len(moments) == MAX_MOMENTS
    assert ("watchdog-timeout", tuple(range(8))) in told(moments)
