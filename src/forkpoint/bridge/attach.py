"""Verdict -> Verdict with the places in the source that was given. What was judged stays as it is."""

import ast
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from forkpoint.bridge import find_forks
from forkpoint.bridge.fork import Fork
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Site, Verdict
from forkpoint.source.analysis import Analysis

_MAX_CONDITION = 120
_MAX_NOTES = 3
_SURE = 0.4
"""Below this another place explains it nearly as well: both are shown as sites, and the summary names none."""


def attach_sites(
    incident: Incident, verdict: Verdict, analysis: Analysis, source: Sequence[str]
) -> tuple[Verdict, tuple[Fork, ...]]:
    """`source`: the folders or files that the program was read from."""
    forks, notes = find_forks(incident, verdict, analysis)
    unread = [f"{relative(n.file, source)}: {n.text}" for n in analysis.program.notes]
    notes = (*verdict.coverage.notes, *unread[:_MAX_NOTES], *notes[:_MAX_NOTES])
    found = sites(forks, source)
    told = f" {found[0].file}:{found[0].line}: {found[0].why}." if found and forks[0].confidence > _SURE else ""
    attached = replace(
        verdict,
        sites=found or tuple(_located(site, analysis, source) for site in verdict.sites),
        summary=f"{verdict.summary}{told}",
        coverage=replace(verdict.coverage, notes=notes),
    )
    return attached, forks


def sites(forks: tuple[Fork, ...], source: Sequence[str] = ()) -> tuple[Site, ...]:
    return tuple(
        Site(
            file=relative(fork.function.module.path, source),
            line=fork.node.lineno,
            function=fork.function.name,
            condition=_condition(fork),
            why=fork.sentence,
            cohort=fork.cohort,
        )
        for fork in forks
    )


def _located(site: Site, analysis: Analysis, source: Sequence[str]) -> Site:
    """A line of a stack, named as it lies under the source that was given."""
    module = analysis.program.module_at(site.file)
    fits = module is not None and site.line <= len(module.lines)
    return replace(site, file=relative(module.path, source)) if module is not None and fits else site


def relative(path: str, source: Sequence[str]) -> str:
    """As it lies under the folder that was given."""
    for root in source:
        inside = os.path.relpath(path, root)
        if Path(root).is_dir() and not inside.startswith(os.pardir):
            return inside
    return path


def _condition(fork: Fork) -> str | None:
    if isinstance(fork.node, ast.ExceptHandler):
        return f"except {fork.function.module.source(fork.node.type)}" if fork.node.type is not None else "except"
    return _short(fork.function.module.source(fork.test)) if fork.test is not None else None


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CONDITION else f"{text[: _MAX_CONDITION - 3]}..."
