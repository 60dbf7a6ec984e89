"""Sites where a rank left no stack: from the last line of its log, its peers' call, and what the program runs between."""

import textwrap
from dataclasses import replace
from pathlib import Path

import forkpoint
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.pipeline import examine
from forkpoint.source.analysis import analyse
from forkpoint.source.bridge import attach_sites
from forkpoint.source.program import read_program
from texts import CLOSED, TIMED_OUT, raised

PROGRAM = """
import time, torch.distributed as dist
from pathlib import Path

class Store:
    def __init__(self, lock):
        self.items, self.lock = {}, lock

    def get(self, key):
        BODY
        return key

def main(rank, store, log):
    for step in range(100):
        x = store.get(step)
        dist.all_reduce(x)  # call
        log.info("finished step %d", step)

main(0, Store(None), None)
"""
POLLS = "while not self.lock.exists():\n    time.sleep(1)"
POLLS_A_WHILE = "begin = time.time()\nwhile not self.lock.exists() and time.time() < begin + 60:\n    time.sleep(1)"


def written(folder: Path, body: str) -> Path:
    source = folder / "source"
    source.mkdir()
    inside = textwrap.indent(body, " " * 8).strip()
    (source / "train.py").write_text(PROGRAM.replace("BODY", inside))
    return source


def line_of(source: Path, text: str, file: str = "train.py") -> int:
    lines = (source / file).read_text().split("\n")
    return next(number for number, line in enumerate(lines, 1) if text in line)


def read(folder: Path, said: dict[int, str]) -> Capture:
    logs = folder / "logs"
    logs.mkdir()
    for rank, text in said.items():
        (logs / f"log_rank_{rank}.txt").write_text(text)
    return forkpoint.read([str(logs)])


def missing(folder: Path, body: str, error: str) -> tuple[Site, ...]:
    """Rank 2 says nothing after its last line; all others fail in the call, each in the same way."""
    source = written(folder, body)
    place = ("/job/train.py", line_of(source, "# call"), "main")
    said = {r: f"finished step 6\nfinished step 7\n{raised(r, error, place)}" for r in (0, 1, 3)} | {
        2: "finished step 6\n"
    }
    for rank, text in said.items():
        said[rank] = text.replace("line 90", f"line {line_of(source, 'main(0')}")
    return forkpoint.diagnose(read(folder, said), source=[str(source)]).sites


def test_the_only_wait_without_a_limit_before_the_call_is_where_a_rank_may_be_stuck(tmp_path: Path) -> None:
    first = missing(tmp_path, POLLS, TIMED_OUT)[0]

    assert first.function == "Store.get"
    assert "the only wait without a limit that rank 2 runs on the way to the call at train.py:" in (first.why or "")


def test_a_wait_that_reads_a_clock_ends(tmp_path: Path) -> None:
    assert not any("wait without a limit" in (s.why or "") for s in missing(tmp_path, POLLS_A_WHILE, TIMED_OUT))


def test_a_rank_whose_connections_closed_did_not_wait(tmp_path: Path) -> None:
    assert not any("wait without a limit" in (s.why or "") for s in missing(tmp_path, POLLS, CLOSED))


def test_a_rank_that_raised_is_not_stuck(tmp_path: Path) -> None:
    program = PROGRAM.replace("BODY", POLLS)
    at = next(number for number, line in enumerate(program.split("\n"), 1) if "# call" in line)
    failing = {r: raised(r, CLOSED, ("/job/train.py", at, "main")) for r in (0, 1, 3)}
    own = "finished step 6\n" + raised(2, "ValueError: no such shard", ("/job/train.py", at, "main"))

    sites = told(tmp_path, program, {**failing, 2: own}, Cause.RANK_LOST, 2)

    assert not any("wait without a limit" in (site.why or "") for site in sites)


# ---------------------------------------------------------------------------------------------------------------------
# What verdicts rest on, from logs alone.

EPOCHS = """
import torch.distributed as dist

def train(loader, x):
    for batch in loader:
        dist.all_reduce(x)  # call

def main(loader, x, log):
    for epoch in range(9):
        train(loader, x)
        log.info("epoch %d finished", epoch)
        dist.barrier()

main([], None, None)
"""


def told(folder: Path, program: str, said: dict[int, str], cause: Cause, *suspects: int) -> tuple[Site, ...]:
    """The sites of a verdict, whoever comes to it."""
    source = folder / "source"
    source.mkdir()
    (source / "train.py").write_text(program)
    found = examine(read(folder, said))
    incident: Incident = found.incident
    verdict: Verdict = replace(found.verdict, cause=cause, suspects=suspects, sites=())
    return attach_sites(incident, verdict, analyse(read_program([str(source)])), [str(source)])[0].sites


def epochs(folder: Path, others: int) -> tuple[Site, ...]:
    """Rank 1 printed that an epoch is over once; the others so many times, and failed inside a loop."""
    lines = EPOCHS.split("\n")
    at = [next(i for i, t in enumerate(lines, 1) if mark in t) for mark in ("        train(loader", "# call")]
    places = [("/job/train.py", at[0], "main"), ("/job/train.py", at[1], "train")]
    failing = {r: raised(r, CLOSED, *places).replace("line 90", f"line {len(lines) - 1}") for r in (0, 2, 3)}
    said = {r: "epoch 0 finished\n" * others + text for r, text in failing.items()} | {1: "epoch 0 finished\n"}
    return told(folder, EPOCHS, said, Cause.DIVERGENT_PATH, 1)


def test_a_rank_that_printed_what_comes_after_a_loop_had_left_it(tmp_path: Path) -> None:
    first = epochs(tmp_path, 0)[0]

    assert (first.function, first.condition) == ("train", "loader")
    assert (first.why or "").startswith("rank 1 had left the loop over `loader`, and ranks 0,2-3 ran another round")


def test_a_line_that_the_others_had_printed_as_often_says_nothing_of_a_loop(tmp_path: Path) -> None:
    assert not any("had left the loop" in (site.why or "") for site in epochs(tmp_path, 1))


RESTORES = """
def main(rank, path, log):
    log.info("rank %d restored %s/step_%d", rank, path, path.step)

main(0, None, None)
"""


def restored(folder: Path, steps: dict[int, int]) -> tuple[Site, ...]:
    said = {rank: f"rank {rank} restored /data/step_{step}\n" for rank, step in steps.items()}
    return told(folder, RESTORES, said, Cause.SILENT_CORRUPTION, 3)


def test_a_number_that_only_the_suspect_printed_otherwise_is_told_with_both(tmp_path: Path) -> None:
    first = restored(tmp_path, {0: 60, 1: 60, 2: 60, 3: 40})[0]

    assert first.line == 3
    assert '"restored /data/step_40" here, all others' in (first.why or "") or "step_40" in (first.why or "")


def test_numbers_that_differ_on_all_ranks_tell_nobody_apart(tmp_path: Path) -> None:
    assert not restored(tmp_path, {0: 60, 1: 61, 2: 62, 3: 40})


JOINS = """
import configparser, torch.distributed as dist

def address(path):
    conf = configparser.ConfigParser()
    conf.read(path)  # reads
    return conf["job"]["host"]

def main(path, rank):
    host = address(path)
    store = dist.TCPStore(host, 29500)
    dist.init_process_group("gloo", store=store, rank=rank)  # call

main("/etc/job.ini", 0)
"""


def test_what_ranks_join_with_is_traced_to_where_it_is_read(tmp_path: Path) -> None:
    lines = JOINS.split("\n")
    at = next(i for i, text in enumerate(lines, 1) if "# call" in text)
    failing = raised(0, TIMED_OUT, ("/job/train.py", at, "main"), call="init_process_group")
    said = {0: failing.replace("line 90", f"line {len(lines) - 1}")}

    first = told(tmp_path, JOINS, said, Cause.NEVER_JOINED)[0]

    assert first.function == "address"
    assert "# reads" in lines[first.line - 1]
