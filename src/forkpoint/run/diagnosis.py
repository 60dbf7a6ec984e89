"""A folder of evidence -> verdict and decision, in a process of its own: it can be ended when it takes too long, and what
goes wrong in it does not change the exit code that the job has earned.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from forkpoint.run.decision import Decision

LIMIT_S = 900.0
"""10,000 ranks with 2,000 calls each take about six minutes."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the worker is asked for."""

    paths: tuple[str, ...]
    attempt: str
    """The folder in which nodes have folders."""
    source: tuple[str, ...]
    child_code: int
    width: int


@dataclass(frozen=True, slots=True)
class Diagnosed:
    cause: str
    action: str
    suspects: tuple[int, ...]
    confidence: float
    seq: int | None
    """Where ranks wait or parted."""
    step: int | None
    """The last training step that any log tells of."""
    decision: Decision
    line: str
    report: str
    verdict: str
    """All of it, as JSON."""


@dataclass(frozen=True, slots=True)
class NotDiagnosed:
    why: str


def diagnose(task: Task, limit_s: float = LIMIT_S) -> Diagnosed | NotDiagnosed:
    # -P: the folder this was started in may hold anything, and no module is taken from there.
    command = [sys.executable, "-P", "-m", "forkpoint.run.worker"]
    try:
        worker = subprocess.run(  # noqa: S603 our own program
            command, input=json.dumps(asdict(task)).encode(), capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return NotDiagnosed(f"the diagnosis was not done after {limit_s:.0f} s")
    try:
        return _read(worker.stdout)
    except (ValueError, KeyError, TypeError):
        last = worker.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return NotDiagnosed(f"the diagnosis broke off ({last or f'exit code {worker.returncode}'})")


def _read(answer: bytes) -> Diagnosed | NotDiagnosed:
    told = json.loads(answer)
    if "error" in told:
        return NotDiagnosed(told["error"])
    decision: dict[str, object] = told.pop("decision")
    suspects: Sequence[int] = told.pop("suspects")
    nodes: Sequence[str] = decision.pop("nodes")  # pyright: ignore[reportAssignmentType] as asdict has written it
    return Diagnosed(**told, suspects=tuple(suspects), decision=Decision(**decision, nodes=tuple(nodes)))  # pyright: ignore[reportArgumentType] likewise
