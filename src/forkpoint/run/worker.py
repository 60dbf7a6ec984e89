"""One diagnosis as a program: a `Task` as JSON on standard input, what came of it as JSON on standard output."""

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from forkpoint.errors import ForkpointError
from forkpoint.ingest import read
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json
from forkpoint.report.text import render_text
from forkpoint.report.verdict_line import render_line
from forkpoint.run.decide import decide
from forkpoint.run.diagnosis import Diagnosed, Task
from forkpoint.run.nodes import find_nodes
from forkpoint.run.steps import find_last_step


def main() -> None:
    task = Task(**json.load(sys.stdin))
    try:
        sys.stdout.write(json.dumps(asdict(_diagnosed(task))))
    except ForkpointError as error:
        sys.stdout.write(json.dumps({"error": str(error)}))


def _diagnosed(task: Task) -> Diagnosed:
    capture = read(task.paths)
    verdict = diagnose(capture, task.source)
    return Diagnosed(
        cause=verdict.cause,
        action=verdict.action,
        suspects=verdict.suspects,
        confidence=verdict.confidence,
        seq=_seq(verdict),
        step=find_last_step([file for file, _ in capture.logs]),
        decision=decide(verdict, task.child_code, find_nodes(capture, Path(task.attempt))),
        line=render_line(verdict),
        report=_report(verdict, task.width),
        verdict=render_json(verdict),
    )


def _seq(verdict: Verdict) -> int | None:
    found = verdict.divergence
    return None if found is None else found.hang_seq if found.hang_seq is not None else found.seq


def _report(verdict: Verdict, width: int) -> str:
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(
        render_text(verdict, width), soft_wrap=True, highlight=False
    )
    return page.getvalue()


if __name__ == "__main__":
    main()
