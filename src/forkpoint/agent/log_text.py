"""Lines of the case's files of text, read again: a capture keeps only what they say of the incident.

Only files that the capture names are opened, and only where they lie behind the paths that were given. Every line is cut,
and no file is read without end.
"""

import io
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from forkpoint.agent.case import Case
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.ingest.files import SNIFF, STDIN, find_files, is_archive
from forkpoint.ingest.logs.archives import ArchiveMember, open_members
from forkpoint.ingest.logs.lines import CHUNK, read_chunks, split_lines

READ_AT_MOST = 1 << 31
"""Bytes of one file."""
LONGEST = 1 << 14
"""Bytes of one line; a longer one ends at the last blank before."""


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int
    """Counted from 1, as evidence counts."""
    text: str
    """As in the file: pass it through `case.clean` before it is shown."""


def text_files(case: Case) -> dict[str, tuple[int, ...]]:
    """Files of text that the capture names, with the ranks that speak in them. Sorted by name."""
    capture = case.incident.capture
    ranks: dict[str, set[int]] = {file: set() for file, _ in capture.logs}
    for file, rank in capture.logs:
        ranks[file] |= set() if rank is None else {rank}
    for stack in capture.stacks:
        ranks.setdefault(stack.file, set()).add(stack.rank)
    for told in (*capture.remarks, *capture.events):
        ranks.setdefault(told.file, set())
    return {file: tuple(sorted(ranks[file])) for file in sorted(ranks)}


def find_file(case: Case, name: str) -> str | None:
    """The file that is meant: by its name, by the name that was shown, or by the end of it where only one ends so."""
    known = {case.clean(file): file for file in text_files(case)}
    if name in known or name in known.values():
        return known.get(name, name)
    ending = [file for shown, file in known.items() if name and shown.endswith(f"/{name}")]
    return ending[0] if len(ending) == 1 else None


def line_at(case: Case, file: str, number: int) -> str | None:
    """One line, cleaned as everything that is shown. None: there is no such file or line, or it cannot be read again."""
    known = find_file(case, file)
    if known is None or number < 1:
        return None
    try:
        found = next(read_lines(case, known, first=number), None)
    except UnreadableInput:
        return None
    return case.clean(found.text) if found is not None and found.number == number else None


def read_lines(case: Case, file: str, first: int = 1, containing: re.Pattern[bytes] | None = None) -> Iterator[LogLine]:
    """Lines from `first` on; with `containing` only those in which it is found. Raises UnreadableInput."""
    for chunk in _read_chunks(case, file):
        if chunk.after > first and (containing is None or containing.search(chunk.data)):
            yield from _split(chunk, first, containing)


def last_lines(case: Case, file: str) -> list[LogLine]:
    """The end of a file: some hundred thousand bytes. Raises UnreadableInput."""
    end = deque(_read_chunks(case, file), maxlen=2)
    return [line for chunk in end for line in _split(chunk, 1, None)]


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    """Of its first line."""
    after: int
    """Of the line behind its last one."""
    goes_on: bool
    """Its first line began in the chunk before, which was enough of it."""
    data: bytes


def _read_chunks(case: Case, file: str) -> Iterator[_Chunk]:
    try:
        for stream in _opened(file, case.paths):
            number, read, goes_on = 1, 0, False
            for data in read_chunks(stream, CHUNK):
                after = number + data.count(b"\n")
                yield _Chunk(number, after if data.endswith(b"\n") else after + 1, goes_on, data)
                number, read, goes_on = after, read + len(data), not data.endswith(b"\n")
                if read >= READ_AT_MOST:
                    raise UnreadableInput(f"{file}: only its first {READ_AT_MOST >> 20} MiB were read again")
            return
    except (OSError, UsageError) as error:
        raise UnreadableInput(f"{file}: cannot be read again ({error})") from error
    raise UnreadableInput(f"{file}: cannot be read again: it came through a pipe, or is gone")


def _split(chunk: _Chunk, first: int, containing: re.Pattern[bytes] | None) -> Iterator[LogLine]:
    for number, raw in enumerate(split_lines(chunk.data), chunk.number):
        began_here = number > chunk.number or not chunk.goes_on
        if number >= first and began_here and (containing is None or containing.search(raw)):
            yield LogLine(number, _shortened(raw))


def _shortened(raw: bytes) -> str:
    """A secret is known by its form: it must not be cut in the middle."""
    if len(raw) > LONGEST:
        head = raw[:LONGEST]
        raw = (head[: head.rfind(b" ")] if b" " in head else head) + "…".encode()
    return raw.decode("utf-8", "replace").rstrip("\r")


def _opened(file: str, paths: tuple[str, ...]) -> Iterator[BinaryIO]:
    """The file as ingest reads it, at most once. A pipe can be read once only, and that has been done."""
    if any(_lies_in(file, path) for path in paths):
        with io.BufferedReader(io.FileIO(file), SNIFF) as stream:
            if not is_archive(stream.peek(SNIFF)):
                yield cast("BinaryIO", stream)
                return
    for path in find_files([path for path in paths if path != STDIN]):
        if Path(path).is_file() and _may_hold(path, file):
            with io.BufferedReader(io.FileIO(path), SNIFF) as stream:
                if is_archive(stream.peek(SNIFF)):
                    yield from (
                        m.stream for m in open_members(stream, path) if isinstance(m, ArchiveMember) and m.name == file
                    )


def _lies_in(file: str, given: str) -> bool:
    """Whether ingest, given this path, reads the plain file: it enters no hidden folder, and none through a link.

    The name of an archive's member may also be that of a file, and lead through a link out of what was given.
    """
    path, root = Path(file), Path(given)
    if not path.is_file() or not path.is_relative_to(root):
        return False
    inside = path.relative_to(root)
    hidden = any(part.startswith(".") for part in inside.parts)
    return path == root or (not hidden and path.parent.resolve() == root.resolve() / inside.parent)


def _may_hold(path: str, file: str) -> bool:
    """Members are named after their archive, without endings such as `.gz`."""
    folder, slash, name = path.rpartition("/")
    return file.startswith(f"{folder}{slash}{name.partition('.')[0]}")
