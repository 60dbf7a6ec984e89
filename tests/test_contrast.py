"""Ranks that printed something else than all others: found where just they differ, and nobody where a difference is usual. Each with a near miss."""

from dataclasses import replace

from forkpoint.diverge.align import align
from forkpoint.evidence.logs import read_log
from forkpoint.judge.facts.contrast import Contrast, find_contrast, find_contrasts, find_lone_contrast
from forkpoint.model.incident import Incident
from forkpoint.model.log import PrintedLine
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, REFUSED, raised, with_logs

RANKS = range(4)
STEPS = [f"step {n} loss 2.{n}" for n in range(3)]
RESUMED = "resumed from trainer_state.json (consumed samples: 160)"
BEHIND = "resumed from trainer_state.json (consumed samples: 120)"
SKIPPED = "no batch left, skipping the last step"


def heard(said: dict[int, list[str]], *, world: int = 4, cut: tuple[int, ...] = ()) -> Incident:
    """Dumps of all ranks, in which nothing is wrong, and the logs of these. `cut`: those whose log ends within a line."""
    job = SmallJob(world)
    job.op()
    capture = with_logs(job.capture(), said)
    capture = replace(capture, cut_logs=frozenset(file for file, rank in capture.logs if rank in cut))
    return Incident.of(capture, align(capture), ())


def told(lines: dict[int, list[str]], usual: list[str], **how: object) -> list[tuple[int, ...]]:
    """Who differs, where these ranks printed these lines and all others the usual ones."""
    incident = heard({rank: lines.get(rank, usual) for rank in RANKS}, **how)
    return [one.ranks for one in find_contrasts(incident)]


# ---------------------------------------------------------------------------------------------------------------------
# A number in which few differ.


def test_the_rank_that_printed_another_number_is_cited_with_what_the_others_printed() -> None:
    [found] = find_contrasts(heard({r: [BEHIND if r == 2 else RESUMED, *STEPS] for r in RANKS}))

    assert (found.ranks, found.own, found.usual) == ((2,), BEHIND, RESUMED)
    assert [(e.file, e.where) for e in found.evidence] == [("log_rank_2.txt", "line 1"), ("log_rank_0.txt", "line 1")]
    assert found.told == f'only rank 2 printed "{BEHIND}", the others "{RESUMED}"'


def test_two_ranks_of_five_that_agree_in_another_number_are_found_together() -> None:
    lines = {r: [BEHIND if r in (1, 3) else RESUMED] for r in range(5)}

    assert [one.ranks for one in find_contrasts(heard(lines, world=5))] == [(1, 3)]


@for_each(
    "odd",
    [{1: [BEHIND], 3: [BEHIND]}, {1: [BEHIND], 3: ["resumed from trainer_state.json (consumed samples: 80)"]}],
    ids=["two of four", "each another"],
)
def test_of_halves_and_of_many_values_nobody_is_odd(odd: dict[int, list[str]]) -> None:
    assert told(odd, [RESUMED]) == []


@for_each(
    "form",
    [
        "rank {} of 4 is ready",
        "listening on port 2950{}",
        "using cuda:{}",
        "2026-11-18 02:29:0{} loaded",
        "loaded in 1.{} s",
        "3{} samples/s",
        "seed {}",
        "store at 10.0.0.{}:29500",
        "dp={} tp=0",
    ],
)
def test_numbers_that_say_who_when_or_how_fast_are_meant_to_differ(form: str) -> None:
    assert told({3: [form.format(9)]}, [form.format(2)]) == []


def test_the_same_rank_has_to_differ_at_each_step_at_which_ranks_differ() -> None:
    always = [f"step {n} batches left {5 - n}" for n in range(4)]
    later = [f"step {n} batches left {5 - n - (n > 1)}" for n in range(4)]
    once = [f"step {n} batches left {5 - n - (n == 0)}" for n in range(4)]

    assert told({2: later}, always) == [(2,)]
    assert told({2: later, 1: once}, always) == []


def test_steps_are_compared_by_their_number_where_a_log_begins_later() -> None:
    usual = [f"step {n} samples {n * n}" for n in range(6)]
    other = [f"step {n} samples {n * n + (n == 4)}" for n in range(6)]

    assert told({2: usual[2:]}, usual) == []
    assert told({2: other[2:]}, usual) == [(2,)]


# ---------------------------------------------------------------------------------------------------------------------
# A line that few printed.


def test_a_line_of_one_rank_alone_is_found_where_no_number_differs() -> None:
    [found] = find_contrasts(heard({r: [*STEPS, *([SKIPPED] if r == 1 else [])] for r in RANKS}))

    assert (found.ranks, found.own, found.usual) == ((1,), SKIPPED, None)
    assert found.told == f'only rank 1 printed "{SKIPPED}"'


def test_a_number_that_differs_goes_before_a_line_of_another_rank_alone() -> None:
    assert told({1: [RESUMED, SKIPPED], 2: [BEHIND]}, [RESUMED]) == [(2,)]


def test_what_one_rank_prints_again_and_again_is_its_role() -> None:
    shown = [f"validation accuracy 0.{n}" for n in range(3)]

    assert told({3: [*STEPS, *shown]}, STEPS) == []
    assert told({3: [*STEPS, *shown[:2]]}, STEPS) == [(3,)]


@for_each(
    "lines, named",
    [
        (["world of 4", *STEPS], []),
        ([*STEPS, SKIPPED], [(0,)]),
        ([SKIPPED, *STEPS, SKIPPED], []),
    ],
    ids=["first", "last and only", "last, and before"],
)
def test_the_first_rank_prints_for_all_unless_it_is_the_last_that_it_ever_says(
    lines: list[str], named: list[tuple[int, ...]]
) -> None:
    assert told({0: lines}, STEPS) == named


# ---------------------------------------------------------------------------------------------------------------------
# What is not compared.


@for_each("error", [raised(1, CLOSED), REFUSED], ids=["a connection", "a size"])
def test_what_a_rank_prints_after_it_blamed_its_peers_follows_from_that(error: str) -> None:
    blamed = error.splitlines()

    assert told({1: [*STEPS, *blamed, "2026-11-18 02:29:08 saving what is left"]}, STEPS) == []
    assert told({1: [*STEPS, "saving what is left", *blamed]}, STEPS) == [(1,)]


def test_a_report_of_the_failure_in_the_line_before_it_follows_from_it_too() -> None:
    blamed = raised(1, CLOSED).splitlines()

    assert told({1: [*STEPS, "step 3 failed", *blamed]}, STEPS) == []


@for_each(
    "line",
    [
        "[rank1]:[W1118 02:29:08.1 ProcessGroupNCCL.cpp:1] slow",
        "node-1:77:91 [1] NCCL INFO Channel 00 : 0 -> 1",
        "/job/train.py:7: UserWarning: old",
        "W1118 02:29:08.100000 77 torch/x.py:9] slow",
        "KeyError: 'loss'",
        "rank got SIGTERM",
        "  indented",
    ],
)
def test_lines_of_libraries_errors_and_signals_are_not_compared(line: str) -> None:
    assert told({1: [*STEPS, line]}, STEPS) == []


def test_a_traceback_is_left_out_to_its_last_line_and_what_comes_after_it_is_not() -> None:
    trace = ["Traceback (most recent call last):", '  File "/job/data.py", line 9, in load', "KeyError: 1", "odd tail"]

    assert told({1: [*STEPS, *trace]}, STEPS) == []
    assert told({1: [*STEPS, *trace, "2026-11-18 02:29:08 goes on without it"]}, STEPS) == [(1,)]


def test_nothing_is_concluded_where_a_log_is_cut_or_a_rank_is_not_heard() -> None:
    lines = {r: [BEHIND if r == 2 else RESUMED] for r in RANKS}
    without = {r: said for r, said in lines.items() if r != 3}

    assert find_contrasts(heard(lines, cut=(1,))) == ()
    assert find_contrasts(heard(without)) == ()


def test_of_two_ranks_that_differ_neither_is_odd() -> None:
    assert find_contrasts(heard({0: [RESUMED], 1: [BEHIND]}, world=2)) == ()


# ---------------------------------------------------------------------------------------------------------------------
# Which of them is asked for.


def test_where_two_ranks_have_a_line_of_their_own_neither_is_the_one_that_differs() -> None:
    one = heard({r: [*STEPS, *([SKIPPED] if r == 1 else [])] for r in RANKS})
    two = heard({r: [*STEPS, *({1: [SKIPPED], 2: ["cache is cold"]}.get(r, []))] for r in RANKS})

    assert _ranks(find_lone_contrast(one)) == (1,)
    assert find_lone_contrast(two) is None
    assert _ranks(find_contrast([(1,), (0, 3)], one)) == (1,)
    assert find_contrast([(1,), (0, 3)], two) is None


def test_a_side_of_which_only_a_part_differs_is_not_the_one() -> None:
    incident = heard({r: [BEHIND if r == 2 else RESUMED] for r in RANKS})

    assert find_contrast([(2, 3), (0, 1)], incident) is None


def _ranks(found: Contrast | None) -> tuple[int, ...]:
    return found.ranks if found else ()


# ---------------------------------------------------------------------------------------------------------------------
# What is kept of a log.


def test_lines_at_both_ends_of_a_log_are_kept_with_their_numbers() -> None:
    log = "".join(f"step {n}\n" for n in range(1, 1001)).encode()

    kept = read_log(log, "log", 0).printed

    assert (kept[0], kept[-1]) == (PrintedLine(1, None, "step 1"), PrintedLine(1000, None, "step 1000"))
    assert [line.line for line in kept if not line.text.endswith(f" {line.line}")] == []
    assert len(kept) < 200


def test_in_a_log_of_many_ranks_each_line_is_its_speaker_s() -> None:
    log = "".join(f"[rank{rank}]: step {n}\n" for n in range(3) for rank in range(2)).encode()

    assert [(line.rank, line.text) for line in read_log(log, "log", None).printed][:2] == [(0, "step 0"), (1, "step 0")]
