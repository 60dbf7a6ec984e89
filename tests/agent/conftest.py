"""What a model is told and says is tested here, not reading: evidence that is as it was is read and examined once."""

import ssl
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from forkpoint.brief import case as brief_case
from forkpoint.evidence import ADMIT_BY_PROOF, Choice, read
from forkpoint.model.capture import Capture
from forkpoint.pipeline import Examination, examine

Stamp = tuple[tuple[str, int, int], ...]
"""Every file with its size and the time of its last change."""


@pytest.fixture(autouse=True)
def _examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_once(paths: Sequence[str], _: object = None, choice: Choice = ADMIT_BY_PROOF) -> Capture:
        return _read(tuple(paths), stamp(paths), choice)

    monkeypatch.setattr(brief_case, "read", read_once)
    monkeypatch.setattr(brief_case, "examine", lambda read, source: _examine(read, tuple(source), stamp(source)))


_trusted = cache(ssl.create_default_context)


@pytest.fixture(autouse=True)
def _certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every client, which has its own otherwise: that costs more than to ask an endpoint of this machine."""
    monkeypatch.setattr(ssl, "create_default_context", _trusted)


def stamp(paths: Sequence[str]) -> Stamp:
    files = [file for path in map(Path, paths) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file())


@cache
def _read(paths: tuple[str, ...], _: Stamp, choice: Choice) -> Capture:
    return read(paths, choice=choice)


_EXAMINED: dict[tuple[int, tuple[str, ...], Stamp], Examination] = {}
"""By the identity of the capture, which `_read` keeps."""


def _examine(capture: Capture, source: tuple[str, ...], changed: Stamp) -> Examination:
    key = (id(capture), source, changed)
    if key not in _EXAMINED:
        _EXAMINED[key] = examine(capture, source)
    return _EXAMINED[key]
