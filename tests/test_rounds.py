"""Lines that ranks print round after round: who did not come to the last one, and who was in step when it fell silent."""

from pathlib import Path

from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from texts import CLOSED, TIMED_OUT, diagnose, raised

EVAL = ("/job/evaluate.py", 12, "evaluate")


def rounds(last: int, role: str = "actor") -> str:
    return "".join(f"05:29:4{n} {role} iter {n} rollout 0.1{n}s\n" for n in range(0, last + 1, 2))


def answer(folder: Path, said: dict[int, str]) -> tuple[Cause, tuple[int, ...]]:
    verdict: Verdict = diagnose(folder, {f"log_rank_{rank}.txt": text for rank, text in said.items()})
    return verdict.cause, verdict.suspects


UNDECIDED = (Cause.INCONCLUSIVE, ())
OTHERS = {r: rounds(6) + raised(r, TIMED_OUT) for r in (2, 3)} | {4: rounds(6) + raised(4, CLOSED)}
LEARNER = {0: rounds(5, "learner") + raised(0, TIMED_OUT)}


def test_a_rank_that_did_not_print_the_round_in_which_all_others_gave_up_is_held(tmp_path: Path) -> None:
    assert answer(tmp_path, {**LEARNER, **OTHERS, 1: rounds(4)}) == (Cause.HOST_STALL, (1,))


@for_each(
    "what, said",
    [
        ("it printed the round: its error may be lost", {**LEARNER, **OTHERS, 1: rounds(6)}),
        ("another rank printed less, too", {**LEARNER, **OTHERS, 1: rounds(4), 3: rounds(4) + raised(3, TIMED_OUT)}),
        ("the log of another is lost", {**LEARNER, 1: rounds(4), 2: OTHERS[2], 4: OTHERS[4]}),
        (
            "the others waited at two places",
            {**LEARNER, **OTHERS, 1: rounds(4), 3: rounds(6) + raised(3, TIMED_OUT, EVAL)},
        ),
        ("its log is cut", {**LEARNER, **OTHERS, 1: rounds(6)[:-9]}),
        ("they were not in step", {**LEARNER, **OTHERS, 1: "05:29:43 actor iter 3 rollout 0.10s\n"}),
        (
            "nobody waited until a timeout",
            {0: rounds(5, "learner") + raised(0, CLOSED), 1: rounds(4)}
            | {r: rounds(6) + raised(r, CLOSED) for r in (2, 3, 4)},
        ),
    ],
)
def test_a_rank_that_printed_less_is_not_named_where_another_story_is_left(
    tmp_path: Path, what: str, said: dict[int, str]
) -> None:
    assert answer(tmp_path / what, said) == UNDECIDED


LOST = {r: rounds(6) + raised(r, CLOSED) for r in (0, 1, 3)}
CUT_SHORT = rounds(6) + raised(3, CLOSED)[:-150]


@for_each(
    "what, said, expected",
    [
        ("in step with all others", {**LOST, 2: rounds(6)}, (Cause.RANK_LOST, (2,))),
        ("a log ends in a traceback at that place", {**LOST, 2: rounds(6), 3: CUT_SHORT}, (Cause.RANK_LOST, (2,))),
        (
            "a log ends in another traceback",
            {**LOST, 2: rounds(6), 3: CUT_SHORT.replace("line 40", "line 41")},
            UNDECIDED,
        ),
        ("not in step", {**LOST, 2: rounds(4)}, UNDECIDED),
        ("one timed out", {**LOST, 2: rounds(6), 3: rounds(6) + raised(3, TIMED_OUT)}, UNDECIDED),
        ("two are silent", {**LOST, 2: rounds(6), 4: rounds(6)}, UNDECIDED),
    ],
)
def test_the_only_rank_without_an_error_is_lost_where_all_others_lost_their_connections(
    tmp_path: Path, what: str, said: dict[int, str], expected: tuple[Cause, tuple[int, ...]]
) -> None:
    assert answer(tmp_path / what, said) == expected


def test_a_silent_rank_of_a_job_of_unknown_size_may_have_been_stopped_by_a_launcher(tmp_path: Path) -> None:
    files = {f"attempt_0/{rank}/stderr.log": text for rank, text in {**LOST, 2: rounds(6)}.items()}

    assert diagnose(tmp_path, files).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Of three ranks one is not heard. The second gave up, and the first works on.

AT = "2026-11-16 02:39:{:02d},600 {}\n"


def trained(rank: int, *, alone: str = "") -> str:
    """Six steps; `alone`: what it prints after the third and the last."""
    lines = [
        AT.format(n, f"train: step {n} loss 0.{rank}{n}") + (AT.format(n, alone) if alone and n in (3, 6) else "")
        for n in range(1, 7)
    ]
    return "".join(lines)


WORKING = "".join(AT.format(n, f"evaluated {n} of 900") for n in range(10, 50, 5))
GAVE_UP = trained(1) + raised(1, TIMED_OUT, call="barrier", code="dist.barrier()")


def test_a_rank_at_work_that_it_alone_does_while_another_gives_up_in_a_barrier_was_late(tmp_path: Path) -> None:
    assert answer(tmp_path, {0: trained(0, alone="evaluating") + WORKING, 1: GAVE_UP}) == (Cause.STRAGGLER, (0,))


@for_each(
    "what, first, second",
    [
        ("nothing says that this work is its own", trained(0) + AT.format(6, "evaluating") + WORKING, GAVE_UP),
        ("the other one did it too", trained(0, alone="evaluating") + WORKING, AT.format(3, "evaluating") + GAVE_UP),
        ("it stopped before the timeout", trained(0, alone="evaluating") + WORKING[:60], GAVE_UP),
        (
            "it can be past the call",
            trained(0, alone="evaluating") + WORKING,
            trained(1) + raised(1, TIMED_OUT, call="broadcast"),
        ),
        ("it failed", trained(0, alone="evaluating") + WORKING + raised(0, CLOSED), GAVE_UP),
        (
            "the call is of a smaller group",
            trained(0, alone="evaluating") + WORKING,
            trained(1) + raised(1, TIMED_OUT, call="barrier", code="dist.barrier(group=g)"),
        ),
    ],
)
def test_a_rank_that_works_on_is_not_said_to_be_late_where_another_story_is_left(
    tmp_path: Path, what: str, first: str, second: str
) -> None:
    assert answer(tmp_path / what, {0: first, 1: second}) == UNDECIDED


# ---------------------------------------------------------------------------------------------------------------------
# Several ranks that were still on their way when others gave up.

WAITED = "RuntimeError: Timed out waiting 20000ms for recv operation to complete"


def rollouts(rank: int, count: int, seconds: int) -> str:
    """Two lines for each of three rounds, the last of them so many seconds after the first."""
    lines = [f"it {n // 2} part {n % 2 + 1}/2, {n * 7 + rank} tokens" for n in range(count)]
    return "".join(f"05:29:{seconds * n // max(1, count - 1):02} {line}\n" for n, line in enumerate(lines))


def late(folder: Path, parts: dict[int, tuple[int, int]], error: str = WAITED) -> Verdict:
    """Ranks 0 and 1 gave up after six lines; by rank: how many lines others printed, and until when."""
    gave_up = {rank: rollouts(rank, 6, 5) + raised(rank, error) for rank in (0, 1)}
    others = {rank: rollouts(rank, *part) for rank, part in parts.items()}
    return diagnose(folder, {f"log_rank_{rank}.txt": text for rank, text in (gave_up | others).items()})


def test_ranks_that_still_print_earlier_rounds_when_others_give_up_are_late(tmp_path: Path) -> None:
    verdict = late(tmp_path, {2: (6, 9), 3: (5, 24), 4: (4, 25)})

    assert (verdict.cause, verdict.suspects) == (Cause.STRAGGLER, (3, 4))
    assert verdict.headline == (
        "Ranks 3-4 were still working when ranks 0-1, which waited for them, gave up after 20 s."
    )


@for_each(
    "what, parts",
    [
        ("it stopped long before", {2: (6, 9), 3: (6, 9), 4: (4, 6)}),
        ("it is in front of those who gave up", {2: (6, 9), 3: (7, 24), 4: (7, 25)}),
        ("all printed the last round", {2: (6, 24), 3: (6, 24), 4: (6, 25)}),
    ],
)
def test_a_rank_is_not_late_where_its_lines_do_not_show_it(
    tmp_path: Path, what: str, parts: dict[int, tuple[int, int]]
) -> None:
    assert late(tmp_path / what, parts).cause is not Cause.STRAGGLER
