"""The outcome of a run, and its JSON: schema `forkpoint.run/1`, `run.schema.json` beside this file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from forkpoint.live.diagnosing import Decision, Diagnosed
from forkpoint.run.job import JobEnd

SCHEMA = "forkpoint.run/1"


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    folder: Path
    """Of the evidence of all nodes."""
    ended: JobEnd
    decision: Decision
    found: Diagnosed | None = None
    hung: bool = False
    """Nothing moved for `--hang-after`, so it was ended."""
    left: tuple[int, ...] = ()
    """Processes that even a kill did not end."""
    kept: bool = True
    """False: it succeeded, and the folder was removed."""

    @property
    def told_to_stop(self) -> bool:
        return self.ended.stopped_by is not None and not self.hung


def render_outcome(name: str, attempts: Sequence[Attempt], decision: Decision) -> str:
    told = {
        "schema": SCHEMA,
        "run": name,
        "decision": asdict(decision),
        "attempts": [_attempt(attempt) for attempt in attempts],
    }
    return json.dumps(told, indent=2)


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "attempt": attempt.number,
        "folder": str(attempt.folder) if attempt.kept else None,
        "exit_code": attempt.ended.code,
        "stopped_by": attempt.ended.stopped_by,
        "hung": attempt.hung,
        "seconds": round(attempt.ended.seconds, 3),
        "processes_left": list(attempt.left),
        "step": attempt.found.step if attempt.found else None,
        "decision": asdict(attempt.decision),
        "verdict": json.loads(attempt.found.document) if attempt.found else None,
    }
