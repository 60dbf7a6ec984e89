"""When is there a reason to look closer? Each reason has a case that must give it and a near miss that must not."""

import math

import msgspec
import pytest

from forkpoint.guard.messages import Beat, RankHealth, decode
from forkpoint.guard.summary import Suspicion, SuspicionReason, suspect
from guard.told import summary_of, told

pytestmark = pytest.mark.torch


def reason(*ranks, stall_s: float | None = 60.0) -> SuspicionReason | None:
    found = suspect(summary_of(ranks), 4, stall_s)
    return found.reason if found else None


def test_ranks_at_work_are_no_reason() -> None:
    assert reason(*(told(r, 5 + r) for r in range(4))) is None


def test_different_calls_at_one_place_are_a_reason_although_the_job_moves_on() -> None:
    assert reason(told(0), told(1), told(2), told(3, tail={5: 999})) is SuspicionReason.MISMATCH


def test_a_late_rank_is_a_reason_only_after_the_threshold() -> None:
    def ranks(seconds: float):
        return (*(told(r, 6, done=5, still_s=seconds) for r in range(3)), told(3, 5, still_s=seconds))

    assert reason(*ranks(59.0)) is None
    assert reason(*ranks(60.0)) is SuspicionReason.STALL


def test_without_a_threshold_half_of_the_groups_own_timeout_counts() -> None:
    def ranks(seconds: float):
        return (*(told(r, 6, done=5, still_s=seconds, timeout_s=100.0) for r in range(3)), told(3, 5, still_s=seconds))

    assert reason(*ranks(49.0), stall_s=None) is None
    assert reason(*ranks(51.0), stall_s=None) is SuspicionReason.STALL


def test_ranks_that_compute_for_long_wait_for_nobody() -> None:
    assert reason(*(told(r, 5, still_s=5000.0) for r in range(4))) is None


def test_one_rank_that_still_moves_is_progress() -> None:
    stuck = [told(r, 6, done=5, still_s=500.0) for r in range(3)]
    assert reason(*stuck, told(3, 5, still_s=0.2)) is None


@pytest.mark.parametrize("state", [RankHealth.RAISED, RankHealth.FINISHED])
def test_a_rank_that_ended_while_others_wait_is_a_reason_at_once(state) -> None:
    waiting = [told(r, 6, done=5, still_s=2.0) for r in range(3)]
    assert reason(*waiting, told(3, 5, state=state)) is SuspicionReason.DEPARTED


def test_a_rank_that_ended_while_nobody_waits_is_none() -> None:
    assert reason(*(told(r, 6, still_s=2.0) for r in range(3)), told(3, 5, state=RankHealth.FINISHED)) is None


def test_a_process_that_a_neighbour_saw_end_is_a_reason_and_one_that_it_saw_stop_only_after_the_threshold() -> None:
    def seen(state: RankHealth, still_s: float) -> SuspicionReason | None:
        waiting = [told(r, 6, done=5, still_s=still_s) for r in range(2)]
        return reason(*waiting, told(2, 6, done=5, still_s=still_s, neighbour=(3, state)))

    assert seen(RankHealth.GONE, 2.0) is SuspicionReason.DEPARTED
    assert seen(RankHealth.STOPPED, 2.0) is None
    assert seen(RankHealth.STOPPED, 61.0) is SuspicionReason.STALL


def test_words_that_no_guard_says_are_not_heard() -> None:
    beat, _ = told(0)
    said = msgspec.to_builtins(beat)
    for words in (
        said | {"still_s": math.inf},
        said | {"still_s": math.nan},
        said | {"still_s": -1.0},
        said | {"groups": {"0": {"size": 1, "completed": 1, "last_seq": 1, "timeout_s": math.inf}}},
    ):
        assert decode(msgspec.msgpack.encode(words), Beat) is None
    assert decode(b"\x91" * 1_000_000, Beat) is None
    assert decode(msgspec.msgpack.encode(said), Beat) == beat


def test_everybody_waiting_at_different_places_may_be_a_cycle() -> None:
    ranks = [told(r, 6, done=5, still_s=2.0, group=f"{r // 2}#p", size=2) for r in range(4)]
    assert reason(*ranks) is SuspicionReason.CYCLE


def test_what_was_investigated_without_an_alarm_does_not_hide_that_nothing_moves() -> None:
    def again(still_s: float, *state: RankHealth) -> SuspicionReason | None:
        ranks = [told(r, 6, done=5, still_s=still_s, group=f"{r // 2}#p", size=2) for r in range(4 - len(state))]
        summary = summary_of([*ranks, *(told(3, 5, state=ended) for ended in state)])
        first = suspect(summary, 4, 60.0)
        assert first is not None
        found = suspect(summary, 4, 60.0, {first.key})
        return found.reason if found else None

    assert again(2.0) is again(2.0, RankHealth.FINISHED) is None
    assert again(61.0) is again(61.0, RankHealth.FINISHED) is SuspicionReason.STALL


def test_everybody_waiting_at_one_place_is_a_slow_call() -> None:
    assert reason(*(told(r, 6, done=5, still_s=2.0) for r in range(4))) is None


def test_steps_that_ended_with_different_numbers_of_calls_are_a_reason() -> None:
    ranks = [told(r, steps={3: {"0#a": 12 - (r == 2)}}) for r in range(4)]
    assert reason(*ranks) is SuspicionReason.STEP


def test_the_same_suspicion_has_the_same_key_at_the_next_look() -> None:
    assert Suspicion(SuspicionReason.STALL, still_s=61.0).key == Suspicion(SuspicionReason.STALL, still_s=62.0).key
