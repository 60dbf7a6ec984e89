"""Eighteen public threads: what their authors had, and what forkpoint tells them (`threads/threads.toml`)."""

import io
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forkpoint
from forkpoint.knowledge.base import find
from forkpoint.model.verdict import Verdict
from looping import for_each
from small_jobs import SmallJob

FOLDER = Path(__file__).parent / "threads"
SHORT = 2
"""Threads that may stay short of what they should be told."""


@dataclass(frozen=True, slots=True)
class Thread:
    number: int
    threads: tuple[str, ...]
    had: str
    lines: str
    """Where the lines come from."""
    says: tuple[str, ...]
    suspects: tuple[int, ...]
    never: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    dumps: str | None = None
    dumps_read: int = 0
    stdin: bool = False
    cause: str = "inconclusive"
    symptom: str | None = None
    action: str | None = None
    explain: str | None = None
    explained: tuple[str, ...] = ()
    short_of: str | None = None
    remark: str | None = None


def load_threads() -> list[Thread]:
    rows = tomllib.loads((FOLDER / "threads.toml").read_text())["thread"]
    return [_thread(row) for row in rows]


def _thread(row: dict[str, Any]) -> Thread:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Thread(**fields)


THREADS = load_threads()
BY_NUMBER = pytest.mark.parametrize("thread", THREADS, ids=lambda thread: f"{thread.number:02}")


def named_after_containers(folder: Path) -> None:
    """Sizes change in every step, and the calls of 1025 elements come from where no frame is seen."""
    job = SmallJob(8)
    for step in range(6):
        job.op(size=64 + step)
        job.op(name="_allgather_base", size=1025, line=None)
    job.op(range(4), name="_allgather_base", size=1025, line=None, done=False)
    job.op(range(4, 8), name="_allgather_base", size=70, line=None, done=False)
    for rank in range(8):
        (folder / f"nccl_trace_rank_container-node0{1 + rank // 4}_{rank}").write_bytes(job.dump(rank))


def one_missing_and_one_cut(folder: Path) -> None:
    job = SmallJob(4)
    for _ in range(6):
        job.op()
    job.op([0, 1, 3], done=False)
    for rank, part in ((0, 1), (1, 1), (3, 0.75)):
        dump = job.dump(rank)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(dump[: int(len(dump) * part)])


DUMPS: dict[str, Callable[[Path], None]] = {
    "named_after_containers": named_after_containers,
    "one_missing_and_one_cut": one_missing_and_one_cut,
}


@pytest.fixture
def diagnose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Thread], Verdict]:
    def run(thread: Thread) -> Verdict:
        paths = [str(FOLDER / name) for name in thread.files]
        if thread.dumps:
            DUMPS[thread.dumps](tmp_path)
            paths.append(str(tmp_path))
        if thread.stdin:
            pasted = b"".join((FOLDER / name).read_bytes() for name in thread.files)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pasted)))
            paths = ["-"]
        return forkpoint.diagnose(forkpoint.read(paths))

    return run


def told(verdict: Verdict) -> str:
    return "\n".join((verdict.summary, *verdict.next, *verdict.coverage.notes, *(e.says for e in verdict.evidence)))


@BY_NUMBER
def test_a_thread_is_told_what_its_evidence_carries(thread: Thread, diagnose: Callable[[Thread], Verdict]) -> None:
    verdict = diagnose(thread)

    assert [text for text in thread.says if not re.search(text, told(verdict))] == []
    assert [text for text in thread.never if re.search(text, told(verdict))] == []
    assert (verdict.cause, verdict.suspects) == (thread.cause, thread.suspects)
    assert thread.symptom in (None, verdict.symptom)
    assert thread.action in (None, verdict.action)
    assert verdict.coverage.dumps == thread.dumps_read


@for_each("thread", [t for t in THREADS if t.explain], ids=lambda thread: f"{thread.number:02}")
def test_what_it_points_to_is_explained(thread: Thread) -> None:
    entry = find(thread.explain or "")[0]

    text = " ".join((entry.means, entry.not_means, *entry.do))
    assert [wanted for wanted in thread.explained if wanted not in text] == []


def test_every_thread_is_here_and_few_stay_short() -> None:
    assert [thread.number for thread in THREADS] == list(range(1, 19))
    assert len([thread for thread in THREADS if thread.short_of]) <= SHORT


def test_every_log_belongs_to_a_thread() -> None:
    assert {path.name for path in FOLDER.glob("*.log")} == {name for thread in THREADS for name in thread.files}
