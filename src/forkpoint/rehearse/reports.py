"""For each place where ranks diverge, the page of its incident, as `forkpoint diagnose --html` writes it."""

from pathlib import Path

from forkpoint.evidence import read
from forkpoint.pipeline import diagnose
from forkpoint.rehearse.model import Rehearsal
from forkpoint.rehearse.render import find_hazards
from forkpoint.report.page import render_html


def write_reports(told: Rehearsal, folder: Path) -> dict[int, str]:
    """Writes the pages. Returns trial -> name of its page, for the first trial of each place."""
    written: dict[int, str] = {}
    for hazard in find_hazards(told.results):
        first = hazard.results[0]
        if first.evidence:
            verdict = diagnose(read([first.evidence]), (str(Path.cwd()),), picture=True)
            name = f"trial_{first.trial.number}.html"
            (folder / name).write_text(render_html(verdict), encoding="utf-8", errors="backslashreplace")
            written[first.trial.number] = name
    return written
