"""Which rank printed a line of a shared console, by what programs call their ranks; and how many ranks there are."""

from pathlib import Path

import forkpoint
from forkpoint.model.capture import Capture
from looping import for_each

TURNS = (2, 1, 3, 0, 2, 3, 0, 1, 1, 2, 0, 3)
"""Ranks in the order in which they print."""


def console(folder: Path, lines: list[str]) -> Capture:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "console.log").write_text("".join(f"{line}\n" for line in lines))
    return forkpoint.read([str(folder)])


def speakers(capture: Capture) -> set[int | None]:
    return {rank for _, rank in capture.logs}


def printed_by(capture: Capture) -> list[int | None]:
    return [line.rank for lines in capture.printed.values() for line in lines]


def steps(form: str, turns: tuple[int, ...] = TURNS) -> list[str]:
    """One line of each rank for each step."""
    counts = dict.fromkeys(turns, 0)
    lines: list[str] = []
    for rank in turns:
        counts[rank] += 1
        lines.append(form.format(rank=rank, step=counts[rank]))
    return lines


@for_each(
    "form",
    [
        "2026-11-19 23:19:35,990 stage{rank} | step {step} 0.062s",
        "[23:32:46][trainer-{rank}] step {step} loss 2.08",
        "00:20:35 stage{rank} step {step} gnorm 0.573",
        "00:59:36 | INFO     | ctr:fit:84 - rank={rank} epoch={step} |w|=5.870620",
        "1795132127.86 {rank}/4 step {step} loss 22.174",
        '{{"ts": 1795130684.68, "rank": {rank}, "event": "step", "step": {step}}}',
    ],
    ids=["a logger for each", "in brackets", "a word", "fields", "of how many", "JSON"],
)
def test_what_every_line_calls_its_rank_says_who_printed_it(tmp_path: Path, form: str) -> None:
    capture = console(tmp_path, steps(form))

    assert speakers(capture) == {0, 1, 2, 3}
    assert printed_by(capture) == list(TURNS)


def test_a_server_without_a_number_before_workers_from_1_is_rank_0(tmp_path: Path) -> None:
    lines = [f"[23:32:4{at}][worker-{rank}] step {at}" for at, rank in enumerate((1, 3, 2, 2, 1, 3))]

    capture = console(tmp_path, [lines[0], "[23:32:40][server] serving 3 workers", *lines[1:]])

    assert speakers(capture) == {0, 1, 2, 3}
    assert printed_by(capture) == [1, 0, 3, 2, 2, 1, 3]


@for_each(
    ("what", "lines"),
    [
        ("numbers that count", steps("2026-11-19 23:19:35,990 batch{rank} | loss {step}.5", (0, 1, 2, 3) * 3)),
        (
            "other things in a fixed order",
            steps("2026-11-19 23:19:35,990 head{rank} | loss {step}.5", (0, 1, 2, 3) * 3),
        ),
        (
            "several ranks of one stage",
            [line for line in steps("12:00:00 stage{rank} | step {step}") for _ in range(2)],
        ),
        (
            "a number is missing",
            steps("2026-11-19 23:19:35,990 stage{rank} | step {step}", (0, 3, 1, 3, 0, 1, 1, 0, 3)),
        ),
        ("a few lines", [*(f"epoch begins, {at}" for at in range(20)), *steps("12:00:00 stage{rank} | step {step}")]),
    ],
)
def test_other_numbers_are_no_ranks(tmp_path: Path, what: str, lines: list[str]) -> None:
    assert speakers(console(tmp_path / what, lines)) == {None}


def test_what_follows_a_progress_bar_on_its_line_is_a_line_of_its_own(tmp_path: Path) -> None:
    bar = "shard 1:   0%|        | 0/40 [0.00it/s]"
    lines = [
        f"{bar}2026-11-19 23:49:18,619 [rank {rank}] train: shard {step}: 3.6" for step in range(3) for rank in (3, 0)
    ]

    capture = console(tmp_path, lines)

    first = next(line.text for lines in capture.printed.values() for line in lines if line.rank == 0)
    assert first.endswith("shard 0: 3.6")


# ---------------------------------------------------------------------------------------------------------------------
# How many ranks the job has.


@for_each(
    ("said", "size"),
    [
        ("Config(vocab=211, dim=48) world=6", {6}),
        ("INFO start RANK=2 WORLD_SIZE=6 LOCAL_RANK=2", {6}),
        ("Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/3", {3}),
        ("this is rank 2 of 8", {8}),
        ("tp world_size=2", set()),
        ("LOCAL_WORLD_SIZE=4", set()),
        ("hello world 12 times.5", set()),
    ],
)
def test_a_program_says_how_many_ranks_there_are_and_how_many_are_in_a_part(
    tmp_path: Path, said: str, size: set[int]
) -> None:
    assert console(tmp_path / said.replace("/", " "), [said, "step 1"]).sizes == size


@for_each(
    ("sizes", "world"),
    [((6,), 6), ((6, 4), 2), ((1,), 2)],
    ids=["one", "two numbers", "too small for the ranks that are seen"],
)
def test_only_one_number_that_fits_is_the_size_of_the_job(tmp_path: Path, sizes: tuple[int, ...], world: int) -> None:
    lines = [
        *(f"world_size={size}" for size in sizes),
        *(f"[rank{rank}]: Traceback (most recent call last):" for rank in (0, 1)),
    ]
    capture = console(tmp_path, [*lines, "[rank1]: ValueError: no"])

    verdict = forkpoint.diagnose(capture)

    assert verdict.coverage.ranks == world
