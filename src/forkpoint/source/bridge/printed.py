"""A log line that only the suspects printed, and the branch of the source that prints it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks
from forkpoint.source.bridge.fork import Fork, ForkKind, Weighed
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.bridge.sides import CodeLine
from forkpoint.source.bridge.why import because, decision_fork, how_caught, place_fork, tell_decision
from forkpoint.source.bridge.words import find_messages, plain
from forkpoint.source.code import Function
from forkpoint.source.syntax import BranchOrLoop, ancestors, shortened

_SHOWN = 60
_IN_BRANCH, _AT_LINE, _SAID = 0.9, 0.5, 0.05
"""The ranks were in the branch for certain; that they parted there is likely."""


def find_printed(
    incident: Incident, verdict: Verdict, found: Sequence[Weighed], flow: ProgramFlow
) -> Iterator[Weighed]:
    """The innermost decision around the call that prints what no other rank printed. If that decision is already among
    the forks, the line is added to its sentence.
    """
    said = sorted(_only_theirs(incident, verdict.suspects))
    printing = (
        [(t[fit.start() :], m.call, m.function) for m in find_messages(flow) for t in said if (fit := m.fits.search(t))]
        if said
        else []
    )
    if len(printing) != 1:
        return
    text, call, function = printing[0]
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    cohort = next((i for i, c in enumerate(cohorts) if set(c.ranks) & set(verdict.suspects)), None)
    who = name_ranks(verdict.suspects, 2)
    told = f'only {who} printed "{shortened(text, _SHOWN)}"'
    node = _decision_around(call, function)
    if node is None:
        place = place_fork(ForkKind.SKIPPED, CodeLine(function, call.lineno), flow.places, told, cohort)
        if place is not None:
            yield Weighed(place, _AT_LINE)
        return
    known = max((w for w in found if w.fork.node is node), key=lambda w: w.weight, default=None)
    if known is not None:
        fork = replace(known.fork, sentence=f"{known.fork.sentence}; {told}")
        yield Weighed(fork, max(_IN_BRANCH, known.weight + _SAID))
    elif isinstance(node, ast.ExceptHandler):
        reasons, _ = how_caught(node, function, flow.analysis)
        caught = f"{who} came to this `except`: {told}{because(reasons)}"
        yield Weighed(Fork(ForkKind.CAUGHT, function, node, None, reasons, None, cohort, 0.0, caught), _IN_BRANCH)
    else:
        decided = f"{tell_decision(node, call.lineno, who, function)}: {told}"
        yield Weighed(decision_fork(node, function, flow.analysis, decided, cohort)[0], _IN_BRANCH)


def _decision_around(call: ast.Call, function: Function) -> BranchOrLoop | ast.ExceptHandler | None:
    above = (node for node, _ in ancestors(call, function) if not isinstance(node, ast.IfExp))
    return next((node for node in above if isinstance(node, BranchOrLoop | ast.ExceptHandler)), None)


def _only_theirs(incident: Incident, suspects: tuple[int, ...]) -> set[str]:
    """Notices of the suspects whose words no other rank used; numbers in them may differ."""
    words = {
        rank: {plain(e.text): e.text for e in said if e.kind is LogKind.NOTICE} for rank, said in incident.said.items()
    }
    others = {plain for rank, texts in words.items() if rank not in suspects for plain in texts}
    return {text for rank in suspects for plain, text in words.get(rank, {}).items() if plain not in others}
