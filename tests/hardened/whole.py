"""Everything that forkpoint makes of a folder: read, examined, drawn, and written in every form."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from forkpoint.evidence import read
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json
from forkpoint.report.markdown import render_markdown
from forkpoint.report.page import render_html
from forkpoint.report.perfetto import DumpsAgain, export_perfetto
from forkpoint.report.sarif import render_sarif
from forkpoint.report.text import render_text
from forkpoint.report.verdict_line import render_line

WIDTH = 100


def run_whole(paths: Sequence[str | Path], *, in_process: bool = False) -> Verdict:
    """Raises InputError where nothing could be used, and whatever a stage or an output raises."""
    names = [str(path) for path in paths]
    capture = read(names, in_process=in_process)
    verdict = diagnose(capture, picture=True)
    render_json(verdict)
    render_markdown(verdict)
    render_sarif(verdict)
    render_html(verdict)
    render_line(verdict)
    Console(file=io.StringIO(), width=WIDTH).print(render_text(verdict, WIDTH))
    for _ in export_perfetto(capture, verdict, DumpsAgain(names, capture)):
        pass
    return verdict
