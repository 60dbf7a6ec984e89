"""Problems of a job script -> text or JSON, schema `forkpoint.env-check/1`."""

from collections.abc import Sequence

from forkpoint.doctor.script import ScriptProblem
from forkpoint.launch_env.release import Release
from forkpoint.report.escape import escape
from forkpoint.report.json_text import json_text

SCHEMA = "forkpoint.env-check/1"


def render_text(path: str, problems: Sequence[ScriptProblem]) -> str:
    """`file:line: what`, which editors can open, with the fix below."""
    if not problems:
        return f"{escape(path)}: nothing missing, wrong or misspelt was found"
    lines: list[str] = []
    for problem in problems:
        where = escape(path) if problem.line is None else f"{escape(path)}:{problem.line}"
        lines += [f"{where}: {escape(problem.about)}: {escape(problem.says)}", f"    fix: {escape(problem.fix)}"]
    return "\n".join(lines)


def render_json(path: str, release: Release | None, problems: Sequence[ScriptProblem]) -> str:
    rows = [
        {"line": problem.line, "about": problem.about, "says": problem.says, "fix": problem.fix} for problem in problems
    ]
    return json_text({"schema": SCHEMA, "script": path, "torch": str(release) if release else None, "problems": rows})
