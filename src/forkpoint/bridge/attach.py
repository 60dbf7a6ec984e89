"""Verdict -> Verdict with sites in the source. The judgement itself does not change."""

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
from forkpoint.source.syntax import shortened

_MAX_CONDITION = 120
_MAX_NOTES = 3
_SURE = 0.4
"""Below this, another place explains it nearly as well: both are sites, and the summary names neither."""


def attach_sites(
    incident: Incident, verdict: Verdict, analysis: Analysis, source: Sequence[str]
) -> tuple[Verdict, tuple[Fork, ...]]:
    """`source`: the folders or files that the program was read from."""
    forks, notes = find_forks(incident, verdict, analysis)
    unread = [f"{relative(n.file, source)}: {n.text}" for n in analysis.program.notes]
    notes = (*verdict.coverage.notes, *unread[:_MAX_NOTES], *notes[:_MAX_NOTES])
    found = sites(forks, source)
    first = f" {found[0].file}:{found[0].line}: {found[0].why}." if found and forks[0].confidence > _SURE else ""
    attached = replace(
        verdict,
        sites=found or tuple(_located(site, analysis, source) for site in verdict.sites),
        summary=f"{verdict.summary}{first}",
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
    """A stack line, with its path below the source that was given."""
    module = analysis.program.module_at(site.file)
    fits = module is not None and site.line <= len(module.lines)
    return replace(site, file=relative(module.path, source)) if module is not None and fits else site


def relative(path: str, source: Sequence[str]) -> str:
    """The path below the given folder that contains it."""
    for root in source:
        inside = os.path.relpath(path, root)
        if Path(root).is_dir() and not inside.startswith(os.pardir):
            return inside
    return path


def _condition(fork: Fork) -> str | None:
    if isinstance(fork.node, ast.ExceptHandler):
        return f"except {fork.function.module.source(fork.node.type)}" if fork.node.type is not None else "except"
    return shortened(fork.function.module.source(fork.test), _MAX_CONDITION) if fork.test is not None else None
