"""Files are read by a child process: what ends it costs the file that it was reading, and is told with its name."""

import ctypes
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.evidence.confined import NOT_READ, ReadingBudget
from hardened.odd import good_dump, with_good

# In a process of its own: a test runner has threads, and a process with threads reads by itself.
PROGRAM = """
import json, os, signal, sys
from forkpoint.evidence import reading as evidence
from forkpoint.evidence import confined
from forkpoint.evidence.summary_file import write_summary

def deadly(path, name, reading, roots, count, read=evidence._read_file):
    if path.endswith("_0"):
        while True: pass
    if path.endswith("_1"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if path.endswith("_2"):
        held = [bytes(1 << 24) for _ in range(1000)]
    read(path, name, reading, roots, count)

def told(folder, **options):
    reading = evidence.read_files([folder], **options)
    return write_summary(reading).hex()

same = [told(case) == told(case, in_process=True) for case in sys.argv[2:]]
evidence._read_file, confined.CPU_S = deadly, 1
reading = evidence.read_files([sys.argv[1]])
print(json.dumps({"same": same, "dumps": reading.records.ranks.tolist(), "problems": [p.text for p in reading.problems]}))
"""
MANY = """
import resource, sys
from forkpoint.evidence import reading as evidence
from forkpoint.evidence import confined

def slow(path, name, reading, roots, count, read=evidence._read_file):
    while path.endswith(".log"): pass
    read(path, name, reading, roots, count)

evidence._read_file, confined._SHARE_S, confined._SPARE_S = slow, 0.1, 1.0
reading = evidence.read_files([sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(len(reading.records), len(reading.problems), used.ru_utime + used.ru_stime)
"""
RIGHTS = """
import os, signal, socket, subprocess, sys
from forkpoint.evidence import reading as evidence
from forkpoint.errors import UnreadableInput
from forkpoint.model.capture import Problem

server = socket.create_server(("127.0.0.1", 0))

def attempt(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"

def bad(path, name, reading, roots, count):
    shell = lambda: subprocess.run(["sh", "-c", f"echo x > {path}.new"], stderr=subprocess.DEVNULL, check=False)
    tried = (
        lambda: open(path, "a"), lambda: os.remove(path), lambda: open(path + ".new", "w"),
        lambda: socket.create_connection(server.getsockname()), lambda: os.kill(os.getppid(), signal.SIGKILL), shell,
    )
    reading.problems.append(Problem(name, " ".join(map(attempt, tried))))

evidence._read_file = bad
try:
    evidence.read_files([sys.argv[1]])
except UnreadableInput as error:
    print(str(error).rpartition("rank_0.log: ")[2])
"""
MUCH = """
import sys
from forkpoint.evidence import reading as evidence
from forkpoint.evidence import confined

confined.OUTPUT = 0
reading = evidence.read_files([sys.argv[1]])
print(len(reading.records), len(reading.texts), *(f"{p.file.rpartition('/')[2]}: {p.text}" for p in reading.problems), sep="\\n")
"""
CASES = Path(__file__).parents[2] / "cases"


def test_what_ends_the_reader_costs_one_file_and_nothing_else_differs(tmp_path: Path):
    folder = with_good(tmp_path, "nccl_trace_rank_3", good_dump(3))
    cases = [str(CASES / number / "capture") for number in ("0001", "0017", "0060")]

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *cases], capture_output=True, text=True, check=True
    )

    told = json.loads(done.stdout)
    assert told["same"] == [True, True, True]
    assert told["dumps"] == [3]
    slow, killed, greedy = told["problems"]
    assert "took more than 1 s" in slow
    assert "SIGSEGV" in killed
    assert "more memory" in greedy


def test_many_files_that_take_long_share_what_is_beyond_their_size(tmp_path: Path):
    folder = with_good(tmp_path, "nccl_trace_rank_3", good_dump(3))
    for number in range(8):
        (folder / f"a{number}.log").write_bytes(b"x")

    done = subprocess.run([sys.executable, "-c", MANY, str(folder)], capture_output=True, text=True, check=True)

    dumps, lost, used_s = done.stdout.split()
    assert (dumps, lost) == ("4", "8")
    assert 1.5 < float(used_s) < 6  # each of them alone may take 1.1 s


@given(st.lists(st.integers(0, 64 << 20), min_size=1, max_size=60), st.integers(1, 3000))
def test_files_of_64_mb_together_may_take_17_s_however_many_they_are_and_whatever_they_hold(
    sizes: list[int], copies: int
):
    sizes = [size * (64 << 20) // max(sum(sizes), 1) // copies for size in sizes] * copies
    budget, used_s = ReadingBudget(sizes), 0.0

    for place in range(len(sizes)):  # as if each of them were a bomb
        if budget.allows(place):
            most_s = budget.most_s(place)
            used_s += most_s
            budget.use(place, most_s)

    assert used_s <= 17.001


def test_an_archive_that_says_more_than_there_is_room_for_is_cut_and_told(tmp_path: Path):
    """Its members are small, and each of them keeps its lines: what is kept grows with what it unpacks to."""
    line = b"[rank%d]: RuntimeError: one of many\n"
    members = {f"rank_{rank}.log": b"".join(line % number for number in range(200)) for rank in range(300)}
    (tmp_path / "logs.tar.gz").write_bytes(tar_gz(members))
    (tmp_path / "z.log").write_bytes(line % 0)

    done = subprocess.run([sys.executable, "-c", MUCH, str(tmp_path)], capture_output=True, text=True, check=True)

    _, texts, *problems = done.stdout.splitlines()
    assert 0 < int(texts) < 300
    assert problems == [
        "logs.tar.gz: says more than there is room for; the rest of it is left out. Name it alone",
        f"z.log: {NOT_READ}",
    ]


def test_the_reader_can_neither_change_files_nor_reach_the_network(tmp_path: Path):
    if not _kernel_has_landlock():
        pytest.skip("this kernel has no Landlock, or an early version of it")
    (tmp_path / "rank_0.log").write_text("x")

    done = subprocess.run([sys.executable, "-c", RIGHTS, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.stdout.split() == [*["PermissionError"] * 5, "done"], done.stderr
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("rank_0.log", "x")]


def tar_gz(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def _kernel_has_landlock() -> bool:
    """With rules for TCP and signals."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6
