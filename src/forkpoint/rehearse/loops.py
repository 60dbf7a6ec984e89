"""Loops that gave one rank their items in another order: both ranks executed the same lines, so no line is a fork."""

import ast
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from forkpoint.rehearse.model import CodeSite, TrialResult
from forkpoint.rehearse.paths import Line, LineItem, read_items
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function, spelled
from forkpoint.source.syntax import last_word

SEEN: Final = 0.85
"""Confidence: recorded facts show it directly (docs/decisions/0005)."""
_SORTS: Final = frozenset({"sort", "sorted", "argsort", "topk", "nlargest", "nsmallest"})


@dataclass(frozen=True, slots=True)
class ReorderedLoop:
    """A loop that gave one rank the same items in another order."""

    file: str
    line: int
    """Of the loop."""
    function: str
    sorts: CodeSite | None
    """Where the source sorts the items. None: it does not show it."""


@dataclass(frozen=True, slots=True)
class _Parting:
    """Where the body of a loop first got different items on the two ranks."""

    place: int
    """Among all items that the disturbed rank's loops gave."""
    line: Line
    again: bool
    """At some later point, both ranks had been given the same set of items."""
    known: bool
    """Every item from here on had already been given earlier in the run."""


def find_reordered(folder: Path, rank: int, other: int, analysis: Analysis) -> ReorderedLoop | None:
    """The first loop that gave the two ranks different items after the disturbance, and equal ones before it. It only reordered them if
    both ranks later had the same items, or if the source sorts them and every item is a known one.
    """
    (before, mine), theirs = read_items(folder, rank), _flat(read_items(folder, other))
    found = [_part(line, before, mine, theirs) for line in dict.fromkeys(at for at, _ in mine)]
    first = min((part for part in found if part is not None), key=lambda part: part.place, default=None)
    return _reordered(first, analysis) if first is not None else None


def _part(line: Line, before: list[LineItem], mine: list[LineItem], theirs: list[LineItem]) -> _Parting | None:
    known = [item for at, item in before if at == line]
    own = [(place, item) for place, (at, item) in enumerate(mine) if at == line]
    their = [item for at, item in theirs if at == line]
    rest = their[len(known) :]
    part = next((n for n, ((_, item), told) in enumerate(zip(own, rest, strict=False)) if item != told), None)
    if part is None or their[: len(known)] != known:
        return None
    late, their_late = [item for _, item in own[part:]], rest[part:]
    is_known = {*known, *rest[:part]}.issuperset((*late, *their_late))
    return _Parting(own[part][0], line, _same_again(late, their_late), is_known)


def _flat(items: tuple[list[LineItem], list[LineItem]]) -> list[LineItem]:
    return [*items[0], *items[1]]


def _same_again(mine: list[int], theirs: list[int]) -> bool:
    """After a number of rounds, both have had the same items."""
    ahead: Counter[int] = Counter()
    for own, their in zip(mine, theirs, strict=False):
        ahead[own] += 1
        ahead[their] -= 1
        if not any(ahead.values()):
            return True
    return False


def _reordered(part: _Parting, analysis: Analysis) -> ReorderedLoop | None:
    line = part.line
    module = analysis.program.module_at(line[0])
    function = module.function_at(line[1]) if module is not None else None
    nodes = ast.walk(function.node) if function is not None else ()
    loop = next((node for node in nodes if isinstance(node, ast.For) and node.body[0].lineno == line[1]), None)
    if loop is None or function is None:
        return None
    sorts = _find_sort(loop, function, analysis)
    return ReorderedLoop(line[0], loop.lineno, function.name, sorts) if part.again or (part.known and sorts) else None


def _find_sort(loop: ast.For, function: Function, analysis: Analysis) -> CodeSite | None:
    """Where the items are sorted: in the loop's head, in a function that it calls, or where its variable is assigned."""
    names = {spelled(part) for part in ast.walk(loop.iter) if isinstance(part, ast.Name | ast.Attribute)}
    made = [
        n.value for n in ast.walk(function.node) if isinstance(n, ast.Assign) and names & {*map(spelled, n.targets)}
    ]
    for value in (loop.iter, *made):
        for call in (part for part in ast.walk(value) if isinstance(part, ast.Call)):
            if last_word(call.func) in _SORTS:
                return CodeSite(function.module.path, call.lineno, function.name)
            for callee in analysis.resolver.callees(call, function).functions:
                sorts = [inner for inner in callee.calls if last_word(inner.func) in _SORTS]
                if sorts:
                    return CodeSite(callee.module.path, sorts[-1].lineno, callee.name)
    return None


def with_order(result: TrialResult, loop: ReorderedLoop, other: int, root: str) -> TrialResult:
    """The verdict with the loop that was seen: the engine sees only that calls do not match. `root`: of the copy that was run."""
    assert result.verdict is not None  # by the caller
    rank = result.trial.rank
    place = loop.sorts or CodeSite(loop.file, loop.line, loop.function)
    file = place.file.removeprefix(f"{root}/")
    why = f"the loop at {loop.file}:{loop.line} gave rank {rank} its items in another order than rank {other}"
    effect = f" after {result.effect.says}" if result.effect else ""
    site = {"file": file, "line": place.line, "function": place.function, "condition": None, "why": why, "cohort": None}
    summary = f"{why[0].upper()}{why[1:]}{effect}; it made its calls in that order."
    verdict = {
        **result.verdict,
        "cause": "order-inversion",
        "suspects": [*result.trial.ranks],
        "confidence": SEEN,
        "action": "fix-code",
        "summary": summary,
        "sites": [site, *result.verdict["sites"]],
        "hypotheses": [],
    }
    return replace(result, verdict=verdict, says=summary)
