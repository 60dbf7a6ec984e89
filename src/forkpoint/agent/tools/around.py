"""What is around the fork: lint findings, the history of the lines, changes since a commit, and another run of the same program."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from forkpoint.agent.case import tool
from forkpoint.agent.tools.source import PlaceArguments, asked_place, place_of_fork
from forkpoint.brief.case import Case, Fact, QuestionRefused, analysis_of, answer, fact, name_module
from forkpoint.diverge.cohorts import issued
from forkpoint.diverge.slots import token_at
from forkpoint.lint import Options, rules
from forkpoint.lint.rule import Violation
from forkpoint.model.entries import Tables
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Incident
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.bridge import relative
from forkpoint.source.code import Module

# ---------------------------------------------------------------------------------------------------------------------
# Lint findings, the nearest to the fork first.


@tool("Places in the source where ranks can diverge, nearest to a line first.")
def lint(case: Case, asked: PlaceArguments) -> Sequence[Fact]:
    analysis, options = analysis_of(case), Options()
    module, line = asked_place(case, asked)
    found = {v for rule in rules.RULES if options.chooses(rule) for v in rule.find(analysis)}
    nothing = "lint finds nothing in this source; ask taint about a single condition"
    return answer(_violations(case, found, module, line), "name another file and line", nothing)


def _violations(case: Case, found: set[Violation], module: Module, line: int) -> Iterator[Fact]:
    def distance(violation: Violation) -> tuple[bool, int, str, int]:
        return violation.file != module.path, abs(violation.line - line), violation.file, violation.line

    for violation in sorted(found, key=distance):
        why = f" ({violation.why})" if violation.why else ""
        where = f"{relative(violation.file, case.source)}:{violation.line}"
        yield fact(case, where, f"{violation.rule} in {violation.function}: {violation.message}{why}")


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


@tool("Commits that changed the lines around a place, newest first, if the source is a git repository.")
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


# ---------------------------------------------------------------------------------------------------------------------
# Compares this run with another run of the same program.

_RANGES = 4


def compare_runs(case: Case, other: Incident, verdict: Verdict) -> Iterator[Fact]:
    """Facts about both, this run first."""
    mine = case.incident
    told = [
        (
            "verdict",
            *(
                f"{v.cause} of {name_ranks(v.suspects, _RANGES) if v.suspects else 'nobody'}"
                for v in (case.verdict, verdict)
            ),
        ),
        ("ranks", *(str(len(i.timeline.world)) for i in (mine, other))),
        ("library", *(_libraries(i) for i in (mine, other))),
        ("groups", *(", ".join(sorted(_by_name(i))) or "none" for i in (mine, other))),
    ]
    for what, here, there in told:
        says = f"the same in both: {here}" if here == there else f"this run: {here}; the other: {there}"
        yield fact(case, what, says)
    theirs = _by_name(other)
    for name, group in sorted(_by_name(mine).items()):
        if name in theirs:
            yield from _compare_groups(case, name, (group, mine), (theirs[name], other))


def _libraries(incident: Incident) -> str:
    traces = incident.timeline.traces
    return ", ".join(sorted({traces[rank].comm_lib for rank in list(traces)[:_RANGES]} - {""})) or "not known"


def _by_name(incident: Incident) -> dict[str, GroupTimeline]:
    """The first group of each name: two runs of a program create groups in the same order."""
    found: dict[str, GroupTimeline] = {}
    for group in incident.timeline.groups:
        if any(group.track(rank) for _, rank in group.kinds):
            found.setdefault(str(group.group), group)
    return found


def _compare_groups(
    case: Case, name: str, mine: tuple[GroupTimeline, Incident], other: tuple[GroupTimeline, Incident]
) -> Iterator[Fact]:
    here, there = (_furthest(group) for group, _ in (mine, other))
    if here is None or there is None:
        return
    yield fact(case, name, f"reached seq {here.last_seq} in this run, seq {there.last_seq} in the other")
    tables = [incident.timeline.tables for _, incident in (mine, other)]
    common = range(max(here.first_seq, there.first_seq), min(here.last_seq, there.last_seq) + 1)
    parted = next((s for s in common if token_at(here, s, tables[0]) != token_at(there, s, tables[1])), None)
    if parted is None:
        says = (
            f"calls are the same from seq {common.start} to {common.stop - 1}"
            if common
            else "no call is recorded in both"
        )
        yield fact(case, name, says)
        return
    calls = [_tell(track, parted, table) for track, table in zip((here, there), tables, strict=True)]
    yield fact(
        case, f"{name} seq {parted}", f"the first call that differs: {calls[0]} in this run, {calls[1]} in the other"
    )


def _furthest(group: GroupTimeline) -> Track | None:
    tracks = [track for _, rank in group.kinds if (track := group.track(rank))]
    return max(tracks, key=lambda track: track.last_seq, default=None)


def _tell(track: Track, seq: int, tables: Tables) -> str:
    signature, stack = issued(track, seq, tables)
    place = user_place(stack)
    sizes = [list(size) for size in (signature.input_sizes or signature.output_sizes)[:2]] if signature else []
    return " ".join(filter(None, [signature.op if signature else "nothing held", str(sizes) if sizes else "", place]))
