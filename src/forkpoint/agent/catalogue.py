"""Probes and fixes that a model can choose from: the engine writes them, the model says where.

A model chooses by id, or names a line. The engine then makes the patch for that place, as it does for the verdict's own
sites; the model writes nothing here. A line that no communication depends on gets no patch.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forkpoint.agent.case import ClaimCheck
from forkpoint.agent.claims.guards import Line, calls_at, deciding_at, find_line, whole_decisions
from forkpoint.agent.hypothesis import Remedy
from forkpoint.brief.case import Case, QuestionRefused
from forkpoint.model.verdict import Cause
from forkpoint.remedies import remedies
from forkpoint.remedies.scene import Scene
from forkpoint.source.branches import Branch, CommStep, skipped
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.bridge.why import how_caught, how_different
from forkpoint.source.syntax import DecidingNode, ancestors
from forkpoint.source.value import NO_REASONS

_LEAVES = frozenset({"return", "continue", "break"})
_Forked = ast.If | ast.While | ast.For | ast.AsyncFor | ast.IfExp
"""Decisions that have remedies; a `match` or an `and` has none."""


@dataclass(frozen=True, slots=True)
class Offered:
    """As the engine wrote it: clean the text before showing it."""

    id: str
    """`P1` is a probe, `X1` a fix; for a line that a model named, `P1@train.py:15`."""
    kind: str
    title: str
    where: str
    patch: str

    @property
    def remedy(self) -> Remedy:
        return Remedy(self.kind, self.title, self.where, self.patch, trusted=True)


def offers(case: Case) -> tuple[Offered, ...]:
    """For all forks of the case, best first. An undecided verdict gets probes only, which help to decide it."""
    return tuple(_numbered(case, case.forks, ""))


def offer_at(case: Case, file: str, line: int) -> tuple[Offered, ...]:
    """For a decision or a collective on a line of source. Raises Refused with the reason if there is none."""
    found = find_line(file, line, case)
    if isinstance(found, ClaimCheck):
        raise QuestionRefused(found.why)
    if case.verdict.cause is Cause.HEALTHY:
        raise QuestionRefused("nothing wrong was found in this case: there is nothing to probe or to fix")
    where = case.clean(str(found))
    forks = [*_known_at(found, case), *_forks_at(found)]
    if not forks:
        raise QuestionRefused(
            f"{where} calls nothing that communicates, and no communication depends on a decision there"
        )
    made = tuple(_numbered(case, forks, f"@{found}"))
    if not made:
        raise QuestionRefused(
            f"no patch is known to be safe for {where}: not all ranks may reach it, or its code has an unknown form"
        )
    return made


def _numbered(case: Case, forks: Iterable[Fork], at: str) -> Iterator[Offered]:
    """Numbers the offers; drops duplicate patches."""
    seen: set[str] = set()
    counts = {"probe": 0, "fix": 0}
    for made in (o for fork in forks for o in _of_fork(case, fork)):
        if made.patch not in seen:
            seen.add(made.patch)
            counts[made.kind] += 1
            letter = "P" if made.kind == "probe" else "X"
            yield Offered(f"{letter}{counts[made.kind]}{at}", made.kind, made.title, made.where, made.patch)


def _of_fork(case: Case, fork: Fork) -> Iterator[Offered]:
    if case.analysis is None:
        return
    probes, fixes = remedies([fork], case.verdict.divergence, case.analysis, case.source)
    where = Scene(None, case.analysis, case.source).where(fork.function.module, fork.node)
    for probe in probes:
        if probe.patch is not None:
            yield Offered("", "probe", probe.title, probe.where or where, probe.patch)
    for fix in fixes if case.verdict.cause is not Cause.INCONCLUSIVE else ():
        if fix.patch is not None:
            yield Offered("", "fix", fix.title, where, fix.patch)


def _forks_at(line: Line) -> list[Fork]:
    forks = [fork for node in whole_decisions(deciding_at(line)) if (fork := _fork(node, line)) is not None]
    return forks or [*_forks_of_calls(line)]


def _known_at(line: Line, case: Case) -> list[Fork]:
    """Forks that the bridge found on this line: they carry more than the syntax shows."""
    return [f for f in case.forks if f.function.module is line.module and f.node.lineno == line.number]


def _fork(node: DecidingNode, line: Line) -> Fork | None:
    """None if no communication depends on it."""
    function, analysis = line.function, line.analysis
    if isinstance(node, ast.ExceptHandler):
        step, kind, test = _step_of_handler(node, line), ForkKind.CAUGHT, None
        reasons = how_caught(node, function, analysis)[0]
    elif isinstance(node, _Forked):
        test = node.iter if isinstance(node, ast.For | ast.AsyncFor) else node.test
        step, kind = _step_of_decision(node, line)
        reasons = how_different(node, test, function, analysis)[0]
    else:
        return None
    if step is None:
        return None
    return Fork(kind, function, node, test, reasons, step, None, 1.0, "named by the model")


def _step_of_decision(node: _Forked, line: Line) -> tuple[CommStep | None, ForkKind]:
    """The first communication inside the loop or an arm; else the first one that an arm skips by leaving early."""
    if isinstance(node, ast.While | ast.For | ast.AsyncFor):
        return next(iter(line.analysis.branches.steps(node.body, line.function)), None), ForkKind.LOOP
    branch = line.analysis.branches.at(node, line.function)
    if branch is None:
        return None, ForkKind.SKIPPED
    inside = next((step for arm in branch.arms for step in arm.steps), None)
    passed = next(_left_out(branch), None)
    if inside is None and passed is not None:
        return passed, ForkKind.LEFT
    return inside, ForkKind.SKIPPED


def _left_out(branch: Branch) -> Iterator[CommStep]:
    for arm in branch.arms:
        for way in sorted(arm.may_leave & _LEAVES):
            yield from skipped(branch, way)


def _step_of_handler(handler: ast.ExceptHandler, line: Line) -> CommStep | None:
    """The first communication in the handler, or in the `try` body that an exception skips."""
    tried = next((o for o, _ in ancestors(handler, line.function) if isinstance(o, ast.Try | ast.TryStar)), None)
    blocks = [*handler.body, *(tried.body if tried else ()), *(tried.orelse if tried else ())]
    return next(iter(line.analysis.branches.steps(blocks, line.function)), None)


def _forks_of_calls(line: Line) -> Iterator[Fork]:
    """For a collective on the line: its arguments may differ, or a rank may not reach it."""
    for call in calls_at(line):
        step = next((s for s in line.analysis.branches.steps([call], line.function) if s.call is call), None)
        if step is not None:
            passed = call.args[0] if call.args else None
            told = "named by the model"
            yield Fork(ForkKind.ARGUMENT, line.function, call, passed, NO_REASONS, step, None, 1.0, told)
            yield Fork(ForkKind.HELD, line.function, call, None, NO_REASONS, step, None, 1.0, told)
