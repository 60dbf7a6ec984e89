"""One diagnosis as a program: a `Task` as JSON on standard input, the row and the page on standard output."""

import json
import sys
from dataclasses import asdict

from forkpoint.errors import ForkpointError
from forkpoint.ingest import read
from forkpoint.model.ranks import format_ranks
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.report.html import Live, render_html
from forkpoint.serve.diagnosis import Row, Task

_MAX_RANGES = 8


def main() -> None:
    task = Task(**json.load(sys.stdin))
    try:
        verdict = diagnose(read([task.path]), task.source, picture=True, embed_source=task.embed_source)
    except ForkpointError as error:
        sys.stdout.write(json.dumps({"error": str(error)}))
        return
    html = render_html(verdict, live=Live(task.events, task.home))
    sys.stdout.write(f"{json.dumps(asdict(as_row(verdict)))}\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(html.encode("utf-8"))


def as_row(verdict: Verdict) -> Row:
    return Row(
        cause=verdict.cause,
        suspects=format_ranks(verdict.suspects, _MAX_RANGES),
        confidence=verdict.confidence,
        when=max((moment.utc for moment in verdict.moments if moment.utc), default=None),
        summary=verdict.summary,
    )


if __name__ == "__main__":
    main()
