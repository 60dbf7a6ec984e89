"""Lines of the user's source for a page, if the user asked for them. Reads only from the given folders."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote as quote_url

from forkpoint.model.frames import user_frames
from forkpoint.model.op import Frame
from forkpoint.model.picture import Quote
from forkpoint.model.verdict import Verdict
from forkpoint.report.pictures.lanes import MAX_LANES
from forkpoint.source.code import Module
from forkpoint.source.forge import forge_page
from forkpoint.source.program import Program

MAX_QUOTES = 64
_AROUND = 6
"""Lines before and after the marked one: enough for most branches and their bodies."""


def quote_source(verdict: Verdict, program: Program, source: Sequence[str]) -> tuple[Quote, ...]:
    """Sites first, then frames of user code in each cohort's stack. `source`: the folders of the program."""
    roots = [Path(root).resolve() for root in source]
    quotes = [*_sites(verdict, program, roots), *_frames(verdict, program, roots)][:MAX_QUOTES]
    return tuple(_with_condition(quote, quotes) for quote in quotes)


def _sites(verdict: Verdict, program: Program, roots: Sequence[Path]) -> Iterator[Quote]:
    for index, site in enumerate(verdict.sites):
        module = _module(site.file, program, roots)
        if module is not None and site.line <= len(module.lines):
            yield _quote(module, site.file, site.line, site=index, condition=site.line if site.condition else None)


def _frames(verdict: Verdict, program: Program, roots: Sequence[Path]) -> Iterator[Quote]:
    cohorts = verdict.divergence.cohorts[:MAX_LANES] if verdict.divergence else ()
    for frame in dict.fromkeys(f for cohort in cohorts for f in user_frames(cohort.stack)):
        module = _module(frame.filename, program, roots)
        if module is not None and 0 < frame.line <= len(module.lines):
            yield replace(_quote(module, frame.filename, frame.line), frame=_named(frame))


def _named(frame: Frame) -> str:
    """The beginning of a frame in the verdict's stacks."""
    return f"{frame.filename}:{frame.line}"


def _module(file: str, program: Program, roots: Sequence[Path]) -> Module | None:
    """Does not follow links that point outside the folders."""
    module = program.module_at(file)
    if module is None:
        return None
    real = Path(os.path.realpath(module.path))
    return module if any(real.is_relative_to(root) for root in roots) else None


def _quote(module: Module, file: str, line: int, *, site: int | None = None, condition: int | None = None) -> Quote:
    first = max(1, line - _AROUND)
    lines = tuple(raw.decode("utf-8", "replace") for raw in module.lines[first - 1 : line + _AROUND])
    page = forge_page(module.path) if site is not None else None
    return Quote(
        file,
        first,
        lines,
        marked=line,
        condition=condition,
        frame=None,
        site=site,
        editor=f"vscode://file{quote_url(str(Path(module.path).resolve()))}:{line}" if site is not None else None,
        forge=f"{page}#L{line}" if page else None,
    )


def _with_condition(quote: Quote, quotes: Sequence[Quote]) -> Quote:
    """The lines around a frame may contain the branch of a site in the same file."""
    if quote.condition is not None:
        return quote
    shown = range(quote.first, quote.first + len(quote.lines))
    same = [q for q in quotes if q.condition in shown and q.lines and _overlap(q, quote)]
    return replace(quote, condition=same[0].condition) if same else quote


def _overlap(one: Quote, other: Quote) -> bool:
    """The line of the condition has the same text in both, so they are from the same file."""
    assert one.condition is not None  # checked by the caller
    return one.lines[one.condition - one.first] == other.lines[one.condition - other.first]
