"""Which way each side went, as the sentence of a site says it: never the other way round."""

import textwrap
from pathlib import Path
from typing import NamedTuple

import forkpoint
from forkpoint.model.capture import Capture
from forkpoint.model.log import LogEvent, LogKind
from looping import for_each
from small_jobs import SmallJob


class Case(NamedTuple):
    body: str
    """Of `step`. Rank 2 makes the call marked `odd`, all others the one marked `usual`."""
    line: str
    """What stands on the line of the site."""
    says: str


HEAD = "import torch.distributed as dist\n\ndef step(rank, x, local=None):\n    dist.all_reduce(x)  # before\n"

CASES = {
    "if": Case(
        "if local.bad():\n    dist.broadcast(x, 0)  # odd\ndist.barrier()  # usual\n",
        "if",
        "`local.bad()` was true on rank 2",
    ),
    "if, not taken": Case(
        "if local.good():\n    dist.broadcast(x, 0)  # usual\ndist.barrier()  # odd\n",
        "if",
        "`local.good()` was false on rank 2",
    ),
    "not": Case(
        "if not local.good():\n    dist.broadcast(x, 0)  # odd\ndist.barrier()  # usual\n",
        "if",
        "`not local.good()` was true on rank 2",
    ),
    "not, not taken": Case(
        "if not local.bad():\n    dist.broadcast(x, 0)  # usual\ndist.barrier()  # odd\n",
        "if",
        "`not local.bad()` was false on rank 2",
    ),
    "else": Case(
        "if local.good():\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "if",
        "`local.good()` was false on rank 2",
    ),
    "else of a negation": Case(
        "if not local.bad():\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "if",
        "`not local.bad()` was false on rank 2",
    ),
    "elif": Case(
        "if x is None:\n    pass\nelif local.bad():\n    dist.broadcast(x, 0)  # odd\nelse:\n    dist.barrier()  # usual\n",
        "elif",
        "`local.bad()` was true on rank 2",
    ),
    "else after elif": Case(
        "if x is None:\n    pass\nelif local.good():\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "elif",
        "`local.good()` was false on rank 2",
    ),
    "early return": Case(
        "for _ in range(9):\n    if local.done():\n        break\n    dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n",
        "if",
        "`local.done()` was true on rank 2, which took the `break`",
    ),
    "early return of the others": Case(
        "for _ in range(9):\n    if not local.done():\n        dist.barrier()  # usual\n        continue\n    dist.broadcast(x, 0)  # odd\n",
        "if",
        "`not local.done()` was false on rank 2",
    ),
    "early return in an else": Case(
        "if local.good():\n    x = x + 1\nelse:\n    return dist.broadcast(x, 0)  # odd\ndist.barrier()  # usual\n",
        "if",
        "`local.good()` was false on rank 2",
    ),
    "early return of the others, negated": Case(
        "if not local.bad():\n    return dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n",
        "if",
        "`not local.bad()` was false on rank 2",
    ),
    "a negation in an and": Case(
        "if x is not None and not local.bad():\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "if",
        "`x is not None and not local.bad()` was false on rank 2",
    ),
    "nested": Case(
        "if local.good():\n    if not local.late():\n        dist.barrier()  # usual\n    dist.broadcast(x, 0)  # odd\n",
        "if not",
        "`not local.late()` was false on rank 2",
    ),
    "a conditional expression": Case(
        "dist.broadcast(x, 0) if local.bad() else print()  # odd\ndist.barrier()  # usual\n",
        "dist.broadcast",
        "`local.bad()` had another result on rank 2",
    ),
    "while not": Case(
        "while not local.done():\n    dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n",
        "while",
        "ran a different number of rounds on rank 2",
    ),
    "while True with a break": Case(
        "while True:\n    if not local.more():\n        break\n    dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n",
        "if",
        "`not local.more()` was true on rank 2, which took the `break`",
    ),
    "match of the others": Case(
        "match local.kind():\n    case 1:\n        return dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n",
        "match",
        "had another result on rank 2",
    ),
    "while and its else": Case(
        "while local.more():\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "while",
        "ran a different number of rounds on rank 2",
    ),
    "match": Case(
        "match local.kind():\n    case 1:\n        dist.barrier()  # usual\n    case _:\n        dist.broadcast(x, 0)  # odd\n",
        "match",
        "had another result on rank 2",
    ),
    "try and its else": Case(
        "try:\n    local.read()\nexcept OSError:\n    dist.broadcast(x, 0)  # odd\nelse:\n    dist.barrier()  # usual\n",
        "except",
        "rank 2 caught `OSError`",
    ),
    "a handler that communicates": Case(
        "try:\n    local.read()\nexcept OSError:\n    dist.broadcast(x, 0)  # odd\ndist.barrier()  # usual\n",
        "except",
        "rank 2 caught `OSError` here and ran broadcast",
    ),
    "a handler that leaves the call out": Case(
        "for _ in range(9):\n    try:\n        local.read()\n        dist.barrier()  # usual\n    except OSError:\n        local.skip()\n    dist.broadcast(x, 0)  # odd\n",
        "except",
        "rank 2 caught `OSError` here and went on without barrier",
    ),
    "try and its else, the others raised": Case(
        "try:\n    local.read()\nexcept OSError:\n    dist.barrier()  # usual\nelse:\n    dist.broadcast(x, 0)  # odd\n",
        "except",
        "caught `OSError` here and rank 2 did not",
    ),
}


def line_of(source: str, mark: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if line.endswith(f"# {mark}"))


def write_program(folder: Path, body: str) -> str:
    source = HEAD + textwrap.indent(body, "    ")
    lines = source.rstrip("\n").split("\n")
    (folder / "train.py").write_text("\n".join([*lines, *[""] * (98 - len(lines)), "step(rank, x)", ""]))
    return source


def parted(source: str, events: tuple[LogEvent, ...] = ()) -> Capture:
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=line_of(source, "before"))
    lines = source.split("\n")
    for ranks, mark in (([2], "odd"), ([0, 1, 3], "usual")):
        line = line_of(source, mark)
        op = "broadcast" if "broadcast" in lines[line - 1] else "barrier"
        job.op(ranks, op, size=len(mark), line=line, done=False)
    return job.capture(events=events)


@for_each("what", CASES)
def test_the_sentence_says_which_way_each_side_went(what: str, tmp_path: Path) -> None:
    case = CASES[what]
    source = write_program(tmp_path, case.body)

    first = forkpoint.diagnose(parted(source), source=[str(tmp_path)]).sites[0]

    assert source.split("\n")[first.line - 1].strip().startswith(case.line)
    assert case.says in (first.why or "")


ASKS_THE_DISK = """
import os
if os.stat("/shared/control").st_mtime_ns > 5:
    dist.broadcast(x, 0)  # odd
dist.barrier()  # usual
"""


def test_what_a_file_system_says_of_a_file_can_differ_by_rank(tmp_path: Path) -> None:
    source = write_program(tmp_path, ASKS_THE_DISK)

    first = forkpoint.diagnose(parted(source), source=[str(tmp_path)]).sites[0]

    assert first.condition == 'os.stat("/shared/control").st_mtime_ns > 5'
    assert "it exists on one node only" in (first.why or "")


def test_calls_that_differ_are_never_said_to_have_other_arguments(tmp_path: Path) -> None:
    """Both sides stand in one line by then, and what led one of them aside is not to be seen."""
    source = write_program(tmp_path, "dist.barrier()  # usual\ndist.broadcast(x, 0)  # odd\n")

    sites = forkpoint.diagnose(parted(source), source=[str(tmp_path)]).sites

    assert not any("arguments that do not match" in (site.why or "") for site in sites)


NOTICED = """
if local.first():
    print("starting the epoch")
if local.second():
    print(f"skipping batch {x}: the loss is not finite")
    dist.broadcast(x, 0)  # odd
dist.barrier()  # usual
"""


def noticed(*ranks: int) -> tuple[LogEvent, ...]:
    text = "skipping batch 17: the loss is not finite"
    return tuple(LogEvent(LogKind.NOTICE, f"rank{rank}.log", 3, rank, text) for rank in ranks)


def test_a_line_that_only_the_suspect_printed_points_at_the_branch_that_prints_it(tmp_path: Path) -> None:
    source = write_program(tmp_path, NOTICED)

    first = forkpoint.diagnose(parted(source, noticed(2)), source=[str(tmp_path)]).sites[0]

    assert first.condition == "local.second()"
    assert 'only rank 2 printed "skipping batch 17' in (first.why or "")


CAUGHT = """
for _ in local.rows():
    try:
        local.parse(x)
    except ValueError as error:
        print(f"skipping batch {x}: {error}")
        dist.broadcast(x, 0)  # odd
dist.barrier()  # usual
"""


def test_a_line_printed_in_an_except_points_at_the_except_and_not_at_the_loop_around_it(tmp_path: Path) -> None:
    source = write_program(tmp_path, CAUGHT)

    first = forkpoint.diagnose(parted(source, noticed(2)), source=[str(tmp_path)]).sites[0]

    assert first.condition == "except ValueError"
    assert 'only rank 2 printed "skipping batch 17: the loss is not finite"' in (first.why or "")


def test_a_line_that_all_ranks_printed_points_at_nothing(tmp_path: Path) -> None:
    source = write_program(tmp_path, NOTICED)

    sites = forkpoint.diagnose(parted(source, noticed(0, 1, 2, 3)), source=[str(tmp_path)]).sites

    assert not any("printed" in (site.why or "") for site in sites)
