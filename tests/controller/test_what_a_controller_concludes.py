"""What is made of ranks' answers, without any process."""

import os
import subprocess
import sys
import time

from forkpoint.controller.answers import (
    CallFailure,
    Death,
    GroupCount,
    Hello,
    IssuedOps,
    Raised,
    RankProcesses,
    RecorderLook,
    find_other_ops,
    find_unequal_counts,
    last_line,
    rank_in,
)
from forkpoint.controller.verdicts import conclude
from forkpoint.model.verdict import Action, Cause
from forkpoint.model.world import ProcessGroup
from looping import for_each

WORLD = ProcessGroup("0", "default_pg", (0, 1, 2))
PAIR = ProcessGroup("1", "undefined", (0, 1))
RESET = "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:4: Connection reset by peer"


def counts(group: ProcessGroup, *seqs: int) -> list[RecorderLook]:
    return [RecorderLook(rank, (GroupCount(group, seq),), ()) for rank, seq in enumerate(seqs)]


def holds(rank: int, *digests: str, from_start: bool) -> RecorderLook:
    """Digests of the last one, two, four ... and of all."""
    issued = IssuedOps(WORLD, 1 << (len(digests) - 2), from_start, digests)
    return RecorderLook(rank, (), (issued,))


def raised(rank: int, error: str) -> Raised:
    return Raised(rank, 3, error, "")


def failed(*, dead: tuple[Death, ...] = (), told: tuple[Raised, ...] = ()) -> CallFailure:
    return CallFailure(3, "step", 3, raised=told, dead=dead)


def test_the_rank_outside_a_strict_majority_is_odd() -> None:
    (split,) = find_unequal_counts(counts(WORLD, 7, 7, 6))

    assert split.odd == (2,)
    assert str(split) == "in default_pg: ranks 0-1 counts 7; rank 2 counts 6"


def test_of_two_ranks_that_differ_neither_is_odd() -> None:
    (split,) = find_unequal_counts(counts(PAIR, 7, 6))

    assert split.odd == ()


def test_nothing_is_said_of_a_group_of_which_a_member_does_not_tell() -> None:
    assert find_unequal_counts(counts(WORLD, 7, 6)) == ()


def test_other_collectives_are_found_as_far_back_as_all_remember() -> None:
    long, short = holds(0, "a", "b", "c", "all", from_start=False), holds(1, "a", "b", "b", from_start=False)

    assert find_other_ops([long, short, holds(2, "a", "b", "b", from_start=False)]) == ()
    (split,) = find_other_ops([long, short, holds(2, "a", "x", "x", from_start=False)])
    assert split.odd == (2,)


def test_where_nothing_was_forgotten_all_of_it_must_be_equal() -> None:
    looks = [holds(rank, "a", "b", "x" if rank == 1 else "all", from_start=True) for rank in range(3)]

    (split,) = find_other_ops(looks)
    assert split.odd == (1,)


@for_each(
    ("words", "rank"),
    [
        ("The actor <root>.<x.RankActor forkpoint_ranks{'gpus': 1/3}> and all its descendants have failed", 1),
        ("The actor ranks{'hosts': 1/2, 'gpus': 3/8} failed", 11),
        ("The host is gone", None),
    ],
)
def test_the_rank_is_its_place_in_the_mesh(words: str, rank: int | None) -> None:
    assert rank_in(words) == rank


def test_the_reason_of_a_death_is_what_monarch_says_last() -> None:
    words = "The actor a{'gpus': 1/3} failed:\n  the process this actor was running on exited with non-zero code 7"

    assert last_line(words) == "its process exited with non-zero code 7"


def test_the_first_process_to_end_is_named_although_others_followed() -> None:
    deaths = (Death(2, "exited with code 1", moment=1), Death(1, "failed: Killed(sig=9)", moment=0))
    verdict = conclude(failed(dead=deaths, told=(raised(0, RESET),)), None, ())

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (1,), Action.INVESTIGATE)


def test_of_processes_that_ended_at_once_none_is_named() -> None:
    verdict = conclude(failed(dead=(Death(1, "", moment=0), Death(2, "", moment=0))), None, ())

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, ())


def test_a_process_that_ended_beside_a_rank_that_failed_by_itself_is_not_named() -> None:
    verdict = conclude(failed(dead=(Death(1, "", moment=0),), told=(raised(0, "ValueError: bad batch"),)), None, ())

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, ())


def test_an_exception_of_all_ranks_accuses_none_and_is_the_codes() -> None:
    verdict = conclude(failed(told=tuple(raised(rank, "KeyError: 'x'") for rank in range(3))), None, ())

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.INCONCLUSIVE, (), Action.FIX_CODE)
    assert "ranks 0-2 raised KeyError: 'x'" in verdict.summary


def test_a_call_that_is_only_slow_asks_for_more_time() -> None:
    verdict = conclude(CallFailure(3, "step", 3, silent=(0, 1, 2), limit_s=60.0), None, ())

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.INCONCLUSIVE, (), Action.RAISE_TIMEOUT)


def test_ended_processes_are_told_in_order_and_the_rest_can_be_killed() -> None:
    children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    processes = RankProcesses(Hello(rank, child.pid, os.getpid(), None) for rank, child in enumerate(children))
    children[1].communicate(b"\n")
    while not processes.deaths():  # two that end before the thread looks are seen at once, and then in no order
        time.sleep(0.01)
    children[0].communicate(b"\n")
    processes.kill()
    processes.close(limit_s=60)
    children[2].communicate()

    assert [death.rank for death in processes.deaths()] in ([1, 0, 2], [1, 2, 0])
    assert [child.returncode for child in children] == [0, 0, -9]


def test_processes_of_other_hosts_are_left_to_monarch() -> None:
    assert RankProcesses([Hello(0, os.getpid(), 1, None)]).count == 0
