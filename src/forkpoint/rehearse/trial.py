"""One trial: runs the job again, with one rank disturbed."""

import ast
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

from forkpoint.rehearse.decisions import asks_for_rank
from forkpoint.rehearse.loops import SEEN, find_reordered, with_order
from forkpoint.rehearse.model import (
    RESUMED,
    Calm,
    CodeSite,
    RunMode,
    RunOrder,
    Trial,
    TrialOutcome,
    TrialResult,
    VerifiedFix,
)
from forkpoint.rehearse.outcome import judge_trial
from forkpoint.rehearse.paths import Line, SeenFork, find_fork, find_step, find_ways, last_line
from forkpoint.rehearse.run import Ended, RehearsedJob, RunLimits, run_job
from forkpoint.rehearse.workspace import Workspace, copy_folder, scratch_folder, workspace
from forkpoint.remedies import remedies
from forkpoint.source import read_program
from forkpoint.source.analysis import Analysis, analyse
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word
from forkpoint.source.value import NO_REASONS

_LEAST_STALL_S: Final = 8.0
_START_S: Final = 180.0
"""Time for four processes to import torch on a busy machine."""
_PATIENCE: Final = 3.0
"""Times the longest pause of the calm run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What all trials of a rehearsal share."""

    job: RehearsedJob
    origin: Path
    """The folder that is copied for each trial."""
    calm: Calm
    keep: Path | None
    """Where the evidence of trials in which ranks diverge is kept."""
    resumed: Path | None = None
    """The folder as the calm run left it, if a second run resumes."""


def run_trial(trial: Trial, stage: Stage) -> TrialResult:
    resumes = RESUMED in trial.target.settings and stage.resumed is not None
    with workspace(stage.resumed if resumes and stage.resumed else stage.origin) as place:
        other = choose_other(trial.ranks, stage.calm)
        order = RunOrder(RunMode.TRIAL, str(place.told), (str(place.work),), trial, other, stage.job.cpu)
        limits = limits_for(stage.calm)
        if resumes:  # a rank that starts at another step makes the same calls until the others are done
            limits = replace(limits, steps_after=False)
        ended = run_job(stage.job, order, place, limits)
        site = ended.effect.site if ended.effect else None
        at = (site.file, site.line) if site else None
        result = replace(judge_trial(trial, ended, place), fork=find_fork(place.told, trial.rank, other, at))
        stopped = [last_line(place.told, number) for number in (trial.rank, other)]
        if result.verdict is not None and waits_alike(result, stopped):
            line = "{}:{}".format(*stopped[0] or ())
            result = replace(result, outcome=TrialOutcome.AGREES, says=f"all ranks wait at {line}", verdict=None)
        if result.verdict is not None and result.fork is not None:
            analysis = analyse(read_program([str(place.work)]))
            fork = find_fork(place.told, trial.rank, other, at, Silence(analysis, result.verdict["sites"]))
            site = next(iter(result.verdict["sites"]), None) if result.verdict["suspects"] == [*trial.ranks] else None
            paths = SeenPaths(
                step=find_step(place.told, trial.rank, other, at),
                named=find_ways(place.told, trial.rank, other, at, (site["file"], site["line"])) if site else None,
                apart=None not in stopped and stopped[0] != stopped[1],
            )
            result = with_fork(replace(result, fork=fork), paths, analysis, roots=[str(place.work)])
        elif result.verdict is not None and result.verdict["cause"] in _OF_PATHS:
            loop = find_reordered(place.told, trial.rank, other, analyse(read_program([str(place.work)])))
            result = with_order(result, loop, other, str(place.work)) if loop is not None else result
        if result.verdict is not None and stage.keep is not None:
            result = replace(result, evidence=str(_keep(trial, ended, place, stage.keep)))
        return result


def waits_alike(result: TrialResult, stopped: Sequence[Line | None]) -> bool:
    """The disturbed rank and the one it is compared with executed the same lines and stopped at the same one, and the engine sees no
    disagreement: what the job waits for is the same on all ranks, as data that none of them has.
    """
    verdict = result.verdict or {}
    unknown = verdict.get("cause") == "inconclusive" and not verdict.get("suspects")
    return unknown and result.fork is None and stopped[0] is not None and stopped[0] == stopped[1]


def choose_other(ranks: Sequence[int], calm: Calm) -> int:
    """The rank to compare with; if possible one with the same lines in the calm run, because work of rank 0 alone is no fork."""
    places = {told.rank: told.lines for told in calm.ranks}
    others = [other for other in places if other not in ranks]
    return next((other for other in others if places[other] == places[ranks[0]]), others[0])


def limits_for(calm: Calm) -> RunLimits:
    """The guard ends hangs. The time limit only protects against an overloaded machine, and decides nothing."""
    pause_s = max((told.longest_pause_s for told in calm.ranks), default=0.0)
    stall_s = max(_LEAST_STALL_S, _PATIENCE * pause_s)
    return RunLimits(
        seconds=10 * calm.seconds + 3 * stall_s + _START_S,
        stall_s=stall_s,
        steps_after=not calm.is_short,
    )


def _keep(trial: Trial, ended: Ended, place: Workspace, folder: Path) -> Path:
    """Dumps, stacks and logs, as `forkpoint diagnose` reads them."""
    target = folder / f"trial_{trial.number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copytree(place.logs, target / "logs")
    if ended.alarm is not None:
        shutil.copytree(ended.alarm, target / "ranks", ignore=shutil.ignore_patterns("verdict.json"))
    elif (place.told / "evidence").is_dir():
        shutil.copytree(place.told / "evidence", target / "ranks")
    return target


# ---------------------------------------------------------------------------------------------------------------------
# Probe and fix for the exact line where ranks diverged: the engine's remedies for an observed fork.


_LEAVES = ast.Return | ast.Continue | ast.Break


@dataclass(frozen=True, slots=True)
class Silence:
    """Which functions of the user do not communicate, for `find_fork`."""

    analysis: Analysis
    sites: Sequence[Mapping[str, Any]]
    """Of the verdict: calls of a library that communicates by itself."""

    def leaves(self, line: Line) -> tuple[str, range] | None:
        function = self._function(line)
        if function is None or function in self.analysis.communication.reaches:
            return None
        named = any(site["file"] == line[0] and function.contains(site["line"]) for site in self.sites)
        return None if named else (function.short, _lines(function))

    def calls(self, line: Line, name: str) -> range | None:
        function = self._function(line)
        found = [call for call in function.calls if last_word(call.func) == name] if function else []
        here = any(call.lineno <= line[1] <= (call.end_lineno or call.lineno) for call in found)
        return _lines(function) if function and here else None

    def _function(self, line: Line) -> Function | None:
        module = self.analysis.program.module_at(line[0])
        function = module.function_at(line[1]) if module else None
        return function if function and function.body else None


def _lines(function: Function) -> range:
    return range(function.body[0].lineno, (function.body[-1].end_lineno or 0) + 1)


@dataclass(frozen=True, slots=True)
class SeenPaths:
    """What the paths of two ranks show, besides their first fork."""

    step: SeenFork | None
    """From the line at which the rank was disturbed to its next one."""
    named: SeenFork | None
    """Where they parted at the line that the engine names first."""
    apart: bool
    """They stopped at different lines."""


def with_fork(result: TrialResult, paths: SeenPaths, analysis: Analysis, roots: Sequence[str]) -> TrialResult:
    """The verdict with what the paths of two ranks show; unchanged if the source does not show a decision at their fork."""
    assert result.verdict is not None  # by the caller
    assert result.fork is not None
    fork, step = locate(result.fork, analysis), paths.step
    if paths.named is not None and (fork is None or (fork.kind is ForkKind.SKIPPED and fork.step is None)):
        named = locate(paths.named, analysis)  # nothing is called under the first, so the ranks meet again
        fork, result = (named, replace(result, fork=paths.named)) if named is not None else (fork, result)
    if fork is not None and fork.test is not None and asks_for_rank([fork.test]):  # no bad luck: a task of this rank
        fork = locate(step, analysis) if step is not None else None
        result = replace(result, fork=step if fork is not None and fork.kind is ForkKind.CAUGHT else None)
    if fork is None or result.fork is None or result.verdict is None:
        return result
    verdict = _with_remedies(result.verdict, fork, analysis, roots)
    site = result.effect.site if result.effect else None
    caught_ours = site is not None and (site.file, site.line) == (result.fork.file, result.fork.line)
    undecided = verdict["cause"] == "inconclusive" and verdict["suspects"] == [*result.trial.ranks]
    if (
        (paths.apart or undecided)
        and (fork.kind is not ForkKind.CAUGHT or caught_ours)
        and verdict["cause"] in _OF_PATHS
    ):
        verdict = _with_path(verdict, result, fork)
    return replace(result, verdict=verdict, says=verdict["summary"])


_OF_PATHS: Final = ("divergent-path", "metadata-mismatch", "order-inversion", "inconclusive")
"""What the engine may call it if ranks on different paths meet in one call."""


def _with_path(verdict: dict[str, Any], result: TrialResult, fork: Fork) -> dict[str, Any]:
    """The verdict with the fork that was seen, unless the engine, which does not see paths, knows as much."""
    seen, rank = result.fork, result.trial.rank
    assert seen is not None  # by the caller
    if verdict["cause"] == "divergent-path" and verdict["suspects"] == [*result.trial.ranks]:
        return verdict
    ways = [f"to line {line}" if line else "into another file" for line in (seen.went_to, seen.other_went_to)]
    why = f"rank {rank} went {ways[0]}, rank {seen.other} {ways[1]}"
    effect = f" after {result.effect.says}" if result.effect else ""
    site = {
        "file": seen.file,
        "line": fork.node.lineno if fork.kind is ForkKind.CAUGHT else seen.line,
        "function": fork.function.name,
        "condition": ast.unparse(fork.test) if fork.test is not None else None,
        "why": why,
        "cohort": None,
    }
    return {
        **verdict,
        "cause": "divergent-path",
        "suspects": [*result.trial.ranks],
        "confidence": SEEN,
        "action": "fix-code",
        "summary": f"Rank {rank} took another path at {seen.file}:{seen.line}{effect}: {why}.",
        "sites": [site, *verdict["sites"]],
        "hypotheses": [],
    }


def _with_remedies(verdict: dict[str, Any], fork: Fork, analysis: Analysis, roots: Sequence[str]) -> dict[str, Any]:
    """The verdict with remedies for this line first."""
    probes, fixes = remedies((fork,), None, analysis, list(roots))
    named = [{"title": p.title, "where": p.where, "patch": p.patch} for p in probes]
    mended = [{"title": f.title, "patch": f.patch} for f in fixes]
    return {
        **verdict,
        "probes": [*named, *(p for p in verdict["probes"] if p["title"] not in {n["title"] for n in named})],
        "fixes": [*mended, *(f for f in verdict["fixes"] if f["title"] not in {m["title"] for m in mended})],
    }


def locate(seen: SeenFork, analysis: Analysis) -> Fork | None:
    """The branch, loop or handler that decides at this line."""
    module = analysis.program.module_at(seen.file)
    if module is None:
        return None
    for function, node in _nodes(module.function_at(seen.went_to) if seen.went_to else None):  # a caller, perhaps
        if isinstance(node, ast.ExceptHandler) and node.lineno == seen.went_to:
            return _fork(ForkKind.CAUGHT, function, node, None, analysis)
    for function, node in _nodes(module.function_at(seen.line)):
        if isinstance(node, ast.For | ast.While) and node.lineno == seen.line:
            test = node.iter if isinstance(node, ast.For) else node.test
            return _fork(ForkKind.LOOP, function, node, test, analysis)
        if isinstance(node, ast.If) and node.lineno <= seen.line <= (node.test.end_lineno or node.lineno):
            left = any(isinstance(part, _LEAVES) for part in (*node.body, *node.orelse))
            return _fork(ForkKind.LEFT if left else ForkKind.SKIPPED, function, node, node.test, analysis)
    return None


def _nodes(function: Function | None) -> Iterator[tuple[Function, ast.AST]]:
    if function is not None:
        yield from ((function, node) for statement in function.body for node in ast.walk(statement))


def _fork(
    kind: ForkKind, function: Function, node: ast.stmt | ast.ExceptHandler, test: ast.expr | None, analysis: Analysis
) -> Fork:
    reasons = analysis.differences.test(test, function).reasons if test is not None else NO_REASONS
    branch = analysis.branches.at(node, function)
    steps = [step for arm in branch.arms for step in arm.steps] if branch else []
    return Fork(
        kind,
        function,
        node,
        test,
        reasons,
        steps[0] if steps else None,
        None,
        1.0,
        "ranks diverged here in a rehearsal",
    )


# ---------------------------------------------------------------------------------------------------------------------
# `--verify-fix`: applies the proposed patch to a copy and repeats the trial.


def verify_fix(result: TrialResult, stage: Stage) -> TrialResult:
    """Repeats the trial with the first fix, if it is a patch; otherwise returns the result unchanged."""
    fixes = (result.verdict or {}).get("fixes", [])[:1]
    if result.outcome is not TrialOutcome.PARTS or not fixes or not fixes[0].get("patch"):
        return result
    with scratch_folder() as folder:
        patched = folder / "patched"
        copy_folder(stage.origin, patched)
        if not apply_patch(fixes[0]["patch"], patched):
            return replace(
                result, verified=VerifiedFix(fixes[0]["title"], TrialOutcome.NOT_REACHED, "the patch does not apply")
            )
        trial = move_trial(result.trial, stage.origin, patched)
        again = run_trial(trial, replace(stage, origin=patched, keep=None))
    return replace(result, verified=VerifiedFix(fixes[0]["title"], again.outcome, again.says))


def apply_patch(patch: str, folder: Path) -> bool:
    git = shutil.which("git")
    if git is None:
        return False
    done = subprocess.run(  # noqa: S603 our own patch, on a copy
        [git, "apply", "-"],
        cwd=folder,
        input=patch.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def move_trial(trial: Trial, before: Path, after: Path) -> Trial:
    """The trial with its site at the line to which the patch moved it. A loader has a number, and a generator its name: a patch may
    iterate over them elsewhere.
    """
    site = trial.target.site
    if trial.target.what.startswith(("loader ", "generator ")):
        return replace(trial, target=replace(trial.target, site=None))
    if site is None or not (before / site.file).is_file():
        return trial
    old, new = ((folder / site.file).read_text(errors="replace").splitlines() for folder in (before, after))
    moved = CodeSite(site.file, moved_line(old, new, site.line), site.function)
    return replace(trial, target=replace(trial.target, site=moved))


def moved_line(old: list[str], new: list[str], line: int) -> int:
    """The new number of a line (from 1) after a change; inside a changed block, at the same offset."""
    for _, begin, end, new_begin, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if begin < line <= end:
            return min(new_begin + line - begin, max(new_end, new_begin + 1))
    return line
