"""Paths -> LintReport, from the cache if nothing has changed."""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count

from forkpoint.lint import LintReport, Options, Progress, cache, lint
from forkpoint.source import Program, read_program
from forkpoint.source.program import find_files


def lint_paths(paths: Sequence[str], options: Options, progress: Progress, *, use_cache: bool) -> LintReport:
    files = _files(paths)
    key = cache.key_of(paths, files, options) if use_cache else ""
    known = cache.load(key) if use_cache else None
    if known is not None:
        return known
    with _without_collector():
        report = lint(read_with_progress(paths, progress), options, progress)
    # If a file changed meanwhile, the key belongs to its old content.
    if use_cache and key == cache.key_of(paths, _files(paths), options):
        cache.store(key, report)
    return report


@contextmanager
def _without_collector() -> Generator[None]:
    """Millions of syntax nodes are made and kept: looking through them for garbage takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_with_progress(paths: Sequence[str], progress: Progress) -> Program:
    done, total = count(), len(_files(paths))
    return read_program(paths, lambda file: progress(next(done), total, file))


def _files(paths: Sequence[str]) -> list[str]:
    return [file for path in paths for file in find_files(path)]
