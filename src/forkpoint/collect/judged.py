"""What is wrong with gathered files: cut short, from another run, still being written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from forkpoint.collect.here import has_grown
from forkpoint.collect.kinds import FileKind
from forkpoint.collect.manifest import Copied
from forkpoint.errors import InputError
from forkpoint.ingest import read
from forkpoint.ingest.flight_recorder import decode
from forkpoint.model.capture import Capture
from forkpoint.model.trace import RankTrace

_SLACK_S = 120.0
"""Between the clock of a file server and that of a rank."""


def judged(files: Sequence[Copied], root: Path, local: frozenset[str]) -> tuple[Copied, ...]:
    """`local`: places whose originals can be looked at again."""
    grown = [replace(file, growing=has_grown(file)) if file.place in local else file for file in files]
    dumps = [file for file in grown if file.kind is FileKind.DUMP]
    capture = _read(dumps, root)
    if capture is None:
        return tuple(_with_damage(file, root) if file.kind is FileKind.DUMP else file for file in grown)
    begin, used = _begin(capture), {trace.file: trace for trace in capture.traces}
    said = {one.file: one.why for one in capture.set_aside}
    return tuple(
        _with_capture(file, root, used, said) if file.kind is FileKind.DUMP else _with_age(file, begin)
        for file in grown
    )


def _read(dumps: Sequence[Copied], root: Path) -> Capture | None:
    try:
        return read([str(root / file.file) for file in dumps]) if dumps else None
    except InputError:
        return None


def _with_capture(file: Copied, root: Path, used: Mapping[str, RankTrace], said: Mapping[str, str]) -> Copied:
    """A dump that can be read but was not taken into the capture is of another run, or an older one of the same rank."""
    path = str(root / file.file)
    if path in used:
        return replace(file, truncated=used[path].cut)
    file = _with_damage(file, root)
    return file if file.truncated else replace(file, stale=said.get(path))


def _with_damage(file: Copied, root: Path) -> Copied:
    try:
        cut = decode((root / file.file).read_bytes(), file.file).header.cut
    except InputError as error:
        cut = str(error).removeprefix(f"{file.file}: ")
    return replace(file, truncated=cut)


def _begin(capture: Capture) -> float | None:
    """When the job made its first call, where rings still hold it."""
    begun = [trace.first_ns for trace in capture.traces if trace.first_ns and trace.from_start]
    return min(begun) / 1e9 if begun and len(begun) == len(capture.traces) else None


def _with_age(file: Copied, begin: float | None) -> Copied:
    if begin is None or file.modified is None or file.modified > begin - _SLACK_S:
        return file
    return replace(file, stale="last written before the first call of this run")
