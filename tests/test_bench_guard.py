"""The arithmetic of the guard's benchmarks, on values written down by hand. Nothing is timed here."""

import pytest

pytest.importorskip("torch")

from bench.guard.cost import table
from bench.guard.latency import FAULTS, Alarmed, score
from bench.guard.rank_cost import read
from bench.guard.scale import Parts, make_told, project
from bench.guard.soak import read_logs
from bench.guard.step_time import Ratio
from forkpoint.guard.calls import BLOCKS, TAIL

pytestmark = pytest.mark.torch

PARTS = Parts(
    groups=1,
    beat_bytes=1000,
    encode_beat=0.001,
    decode_beat=0.0001,
    calls_bytes=0,
    encode_calls=0.0,
    decode_calls=0.0,
    summary_bytes=2000,
    encode_summary=0.002,
    decode_summary=0.0002,
    summarise=0.003,
    merge=0.004,
    serve_set=1e-6,
    serve_check=2e-6,
    serve_read=1e-4,
)


def test_blocks_are_compared_in_pairs_so_a_machine_that_slows_down_changes_nothing() -> None:
    plain = [1.0, 2.0, 4.0, 8.0, 16.0]
    ratio = Ratio.of([value * 1.01 for value in plain], plain)
    assert ratio.median == pytest.approx(1.01)
    assert (ratio.low, ratio.high) == pytest.approx((1.01, 1.01))


def test_the_interval_narrows_with_more_pairs_and_always_holds_the_median() -> None:
    noisy = [1.0 + (number * 37 % 101 - 50) / 500 for number in range(400)]
    few, many = Ratio.of(noisy[:20], [1.0] * 20), Ratio.of(noisy, [1.0] * 400)
    assert many.high - many.low < few.high - few.low
    assert many.low <= many.median <= many.high


def test_a_job_of_one_leader_sends_beats_and_nothing_further() -> None:
    found = project(64, PARTS, every_s=0.5, checks=3)
    assert found.levels == 1
    assert found.top_cpu == pytest.approx((0.001 + 64 * 0.0001 + 0.003 + 0.002) / 0.5)
    assert found.store_in == 64 * 1000 / 0.5
    often = 1.1  # calls go beside every tenth beat
    assert found.store_requests == pytest.approx((64 * often + 64 * 3 + often) / 0.5)
    assert found.store_cpu == pytest.approx((64 * often * 1e-6 + 64 * 3 * 2e-6 + often * 1e-4) / 0.5)


def test_in_a_large_job_only_the_store_and_rank_zero_have_more_to_do() -> None:
    small, large = (project(world, PARTS, every_s=0.5, checks=3) for world in (64, 100_000))
    assert large.levels == 3
    assert large.leader_cpu == small.leader_cpu
    assert large.rank_cpu == small.rank_cpu
    upper = 64 * 0.0002 + 0.004 + 0.002
    assert large.top_cpu - small.top_cpu == pytest.approx(2 * upper / 0.5)
    assert large.store_in == (100_000 * 1000 + (1563 + 25) * 2000) / 0.5


def test_the_beat_that_is_timed_is_as_large_as_one_can_be() -> None:
    beat, calls = make_told(0, 3)
    assert len(beat.groups) == 3
    assert [len(tail) for tail in calls.tails.values()] == [TAIL] * 3
    assert [len(blocks) for blocks in calls.blocks.values()] == [BLOCKS] * 3


def test_only_who_did_it_is_right_and_whoever_else_is_named_is_counted() -> None:
    fault = next(f for f in FAULTS if f.how == "broadcast")
    found = score(
        fault,
        [
            Alarmed(2, 2.0, "divergent-path", (2,)),
            Alarmed(1, 4.0, "divergent-path", (1, 3)),
            Alarmed(0, 3.0, "host-stall", ()),
            Alarmed(3, None),
        ],
    )
    assert (found.runs, found.silent, found.median_s, found.worst_s) == (4, 1, 3.0, 4.0)
    assert (found.right_cause, found.right_ranks, found.accused) == (2, 1, 1)


def test_in_an_inversion_either_of_the_two_ranks_may_be_named() -> None:
    fault = next(f for f in FAULTS if f.how == "order")
    found = score(fault, [Alarmed(1, 2.0, "order-inversion", (0, 1)), Alarmed(0, 2.0, "order-inversion", (2,))])
    assert (found.right_ranks, found.accused) == (1, 1)


def test_alarms_and_other_words_of_the_guard_are_told_apart_from_the_jobs_own() -> None:
    logs = [
        "step 1\nforkpoint guard: 2026-11-15T10:00:00Z host-stall, confidence 0.8: rank 1 is late\nHEARD 12.5\n",
        "forkpoint guard: rank 1 is blind: no store\nHEARD 2.5\n",
    ]
    found = read_logs("a", logs, [0, None])
    assert (len(found.alarms), len(found.blind), found.failed, found.heard_s) == (1, 1, 1, 15.0)


def test_a_rank_that_was_never_watched_shows_as_not_heard() -> None:
    assert read_logs("a", ["HEARD 0.0\n", "killed"], [0, -9]).heard_s == 0


def test_memory_is_told_in_megabytes() -> None:
    share = {"cpu": 0.001, "requests": 8.0, "sent": 4000.0, "received": 8.0}
    found = read({"busy": share, "idle": share, "grown_kb": 2048, "traced_kb": 512.0})
    assert (found.grown_mb, found.traced_mb, found.answer_bytes) == (2.0, 0.5, 0)


def test_a_table_is_markdown() -> None:
    assert table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
