"""The source around the fork: lint findings, the history of the lines, and changes since a commit."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from forkpoint.agent.case import Tool
from forkpoint.agent.tools.source import PlaceArguments, asked_place, place_of_fork
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.brief.naming import analysis_of, answer, fact, name_module
from forkpoint.lint import Options, rules
from forkpoint.lint.rule import Violation
from forkpoint.source.bridge import relative
from forkpoint.source.code import Module

# ---------------------------------------------------------------------------------------------------------------------
# Lint findings, the nearest to the fork first.


def lint(case: Case, asked: PlaceArguments) -> Sequence[Fact]:
    analysis, options = analysis_of(case), Options()
    module, line = asked_place(case, asked)
    found = {v for rule in rules.RULES if options.chooses(rule) for v in rule.find(analysis)}
    shown = answer(_violations(case, found, module, line), "name another file and line")
    if not shown:
        raise QuestionRefused("lint finds nothing in this source; ask taint about a single condition")
    return shown


def _violations(case: Case, found: set[Violation], module: Module, line: int) -> Iterator[Fact]:
    def distance(violation: Violation) -> tuple[bool, int, str, int]:
        return violation.file != module.path, abs(violation.line - line), violation.file, violation.line

    for violation in sorted(found, key=distance):
        why = f" ({violation.why})" if violation.why else ""
        where = f"{relative(violation.file, case.source)}:{violation.line}"
        yield fact(case, where, f"{violation.rule} in {violation.function}: {violation.message}{why}")


LINT = Tool(
    name="lint",
    description="Places in the source where ranks can diverge, nearest to a line first.",
    arguments=PlaceArguments,
    answer=lint,
)


# ---------------------------------------------------------------------------------------------------------------------
# git, run so that a repository's configuration executes nothing: no hooks, pagers, external diffs, filters or signatures, and
# no fetching.

_PATIENCE_S = 20
_QUIET = (
    "--no-pager", "--no-replace-objects", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
    "-c", "log.showSignature=false", "-c", "protocol.allow=never", "-c", "diff.external=",
)  # fmt: skip
_COMMIT = re.compile(r"[A-Za-z0-9][\w./@^~-]{0,99}")
_AROUND = 3
_COMMITS = 8


def ask_git(folder: str, *arguments: str) -> str:
    """Raises Refused if this is not a repository, or git is not installed."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get(
            "HOME", ""
        ),  # git refuses other users' repositories unless the user's config allows them
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    try:
        done = subprocess.run(  # noqa: S603 a fixed program; arguments are checked, and behind `--`
            ["git", *_QUIET, "-C", folder, *arguments],  # noqa: S607 wherever the user has it
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QuestionRefused(f"git could not be run ({type(error).__name__})") from error
    if done.returncode != 0:
        raise QuestionRefused("git failed: the source is not a repository, or it has no such commit or file")
    return done.stdout.decode("utf-8", "replace")


def history(case: Case, asked: PlaceArguments) -> Sequence[Fact]:
    module, line = asked_place(case, asked)
    path = Path(module.path).resolve()
    first, last = max(1, line - _AROUND), min(len(module.lines), line + _AROUND)
    lines = f"{first},{last}:{path.name}"
    form = "--format=%h%x09%as%x09%s"
    log = ask_git(str(path.parent), "log", f"-n{_COMMITS}", "-s", "--no-ext-diff", "--no-textconv", form, f"-L{lines}")
    found = [told.split("\t", 2) for told in log.splitlines() if told.count("\t") >= 2]
    if not found:
        raise QuestionRefused("no commit has these lines: they are not committed yet")
    where = f"{name_module(case, module)}:{first}-{last}"
    return answer(
        (fact(case, where, f"commit {h} of {day}: {subject}") for h, day, subject in found), "ask for another line"
    )


HISTORY = Tool(
    name="history",
    description="Commits that changed the lines around a place, newest first, if the source is a git repository.",
    arguments=PlaceArguments,
    answer=history,
)


# ---------------------------------------------------------------------------------------------------------------------
# What changed since a commit.

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@ ?(.*)")


def changes_since(case: Case, commit: str) -> Iterator[Fact]:
    """Changes between a commit and the current source, the nearest to the fork first."""
    analysis_of(case)
    if not _COMMIT.fullmatch(commit) or ".." in commit:
        raise QuestionRefused("name one commit, branch or tag to compare with the current source")
    root = Path(case.source[0]).resolve()
    folder = str(root if root.is_dir() else root.parent)
    diff = ask_git(
        folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "-U0", "--relative", commit, "--", "*.py"
    )
    fork = place_of_fork(case)
    found = sorted(_hunks(diff), key=lambda hunk: _distance(hunk, fork))
    if not found:
        raise QuestionRefused(f"no Python file below the source changed since {commit}")
    for file, line, inside, lines in found:
        yield fact(case, f"{file}:{line}", f"changed{f' in {inside}' if inside else ''}: {' / '.join(lines)}")


def _distance(hunk: tuple[str, int, str, list[str]], fork: tuple[str, int] | None) -> tuple[bool, int, str]:
    file, line, _, _ = hunk
    return fork is None or file != fork[0], abs(line - fork[1]) if fork is not None else line, file


def _hunks(diff: str) -> Iterator[tuple[str, int, str, list[str]]]:
    """File, line, function as git names it, and the first changed lines."""
    file, hunk = "", None
    for line in diff.splitlines():
        head = _HUNK.match(line)
        if head or line.startswith("+++ "):
            if hunk is not None:
                yield hunk
            hunk = (file, int(head[1]), head[3].strip(), []) if head else None
            file = line.removeprefix("+++ ").removeprefix("b/").strip() if not head else file
        elif hunk is not None and line[:1] in {"+", "-"} and len(hunk[3]) < _AROUND:
            hunk[3].append(f"{line[0]} {line[1:].strip()}")
    if hunk is not None:
        yield hunk
