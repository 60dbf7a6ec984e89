"""Stage 1: paths -> Capture. The kind of a file is detected from its content. Unusable files are reported, not fatal."""

import io
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from forkpoint.errors import InputError, UnreadableInput
from forkpoint.evidence.confined import Count, File, can_confine, read_confined
from forkpoint.evidence.file_names import FileNames
from forkpoint.evidence.files import (
    SNIFF,
    SUMMARY,
    WithoutNuls,
    find_files,
    find_ways_out,
    is_archive,
    is_url,
    open_file,
    shown,
)
from forkpoint.evidence.links import LeadsOut
from forkpoint.evidence.reading import Reading
from forkpoint.evidence.text import clean
from forkpoint.model.capture import Capture, Problem
from forkpoint.parts import internal_problem
from forkpoint.traces import dump
from forkpoint.traces.admission import ADMIT_BY_PROOF, Choice

if TYPE_CHECKING:
    _Stream = io.BufferedReader[io.FileIO]

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what): bytes and the current file while files are read, otherwise files or nodes."""

WAY_OUT = "a link that points outside its folder; not followed (use --follow-links)"
_log = logging.getLogger(__name__)
TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")


def read(
    paths: Sequence[str],
    progress: Progress | None = None,
    choice: Choice = ADMIT_BY_PROOF,
    *,
    follow_links: bool = False,
    in_process: bool = False,
) -> Capture:
    """Reads all files at these paths. Raises UnreadableInput if none could be used."""
    return read_files(paths, progress, follow_links=follow_links, in_process=in_process).capture(choice)


def read_files(
    paths: Sequence[str],
    progress: Progress | None = None,
    origin: str = "",
    *,
    follow_links: bool = False,
    in_process: bool = False,
) -> Reading:
    """What each file says, not yet combined. `origin`: the machine that holds the files, if not this one; a prefix of their
    names. `follow_links`: follow links that point outside a folder, too.
    """
    files = find_files(paths, follow_links=follow_links)
    roots = () if follow_links else tuple(paths)
    reading = Reading(names=FileNames(files))
    reading.problems += [Problem(link, WAY_OUT) for link in (() if follow_links else find_ways_out(paths))]
    meter = _ReadMeter(files, progress) if progress else None
    named = [
        (path, f"{origin}:{os.path.abspath(path)}" if origin and not is_url(path) else shown(path)) for path in files
    ]
    if in_process or not can_confine():
        for file in named:
            _read_one(file, reading, roots, meter.begin(file[0]) if meter else None)
    else:
        read_confined(named, reading, partial(_read_one, roots=roots), meter.begin if meter else None)
    reading.require(paths)
    return reading


def _read_one(file: File, reading: Reading, roots: Sequence[str], count: Count | None) -> None:
    """Never raises: a bad file must not keep the others from being read."""
    path, name = file
    try:
        _read_file(path, name, reading, roots, count)
    except InputError as error:
        reading.problems.append(Problem(name, clean(str(error).removeprefix(f"{name}: "))))
    except MemoryError:
        text = "needs more memory than one file may use; left out. Use --in-process if you trust it"
        reading.problems.append(Problem(name, text))
    except Exception as error:  # noqa: BLE001 - see the docstring
        broken = internal_problem(f"the reading of {clean(name)}", error)
        reading.internal.append(broken)
        reading.problems.append(Problem(name, f"forkpoint failed on it ({broken.error}); left out"))
    _log.debug("read %s", name)


class _ReadMeter:
    """Reports how much of all files has been read. A file may be read twice or only in part; it counts once, when done."""

    def __init__(self, files: Sequence[str], progress: Progress) -> None:
        self._sizes = {path: _size(path) for path in files}
        self._total = max(1, sum(self._sizes.values()))
        self._progress = progress
        self._done, self._within, self._path = 0, 0, ""

    def begin(self, path: str) -> Callable[[int], None]:
        """Starts a file. The returned function is called with the number of bytes as they are read."""
        self._done += self._sizes.get(self._path, 0)
        self._path, self._within = path, 0
        self._count(0)
        return self._count

    def _count(self, size: int) -> None:
        self._within = min(self._within + size, self._sizes[self._path])
        self._progress(self._done + self._within, self._total, shown(self._path))


def _size(path: str) -> int:
    """0 for pipes and URLs: their size is not known."""
    try:
        return 0 if is_url(path) else os.stat(path).st_size
    except OSError:
        return 0


def _read_file(
    path: str, name: str, reading: Reading, roots: Sequence[str], count: Callable[[int], None] | None
) -> None:
    try:
        with open_file(path, roots, count) as stream:
            head = stream.peek(SNIFF)[:SNIFF]
            if is_archive(head):
                _read_archive(stream, name, reading)
            else:
                _read_unpacked(stream, head, name, reading)
    except LeadsOut as error:
        raise UnreadableInput(f"{name}: {WAY_OUT}") from error
    except OSError as error:
        raise UnreadableInput(f"{name}: cannot be read ({error.strerror}); check its permissions") from error


def _read_archive(stream: "_Stream", path: str, reading: Reading) -> None:
    from forkpoint.evidence.archives import open_members  # noqa: PLC0415 - slow to import

    for member in open_members(stream, path):
        if isinstance(member, Problem):
            reading.problems.append(member)
            continue
        try:
            read_stream(io.BufferedReader(cast("io.FileIO", member.stream), SNIFF), member.name, reading)
        except InputError as error:
            reading.problems.append(Problem(member.name, clean(str(error).removeprefix(f"{member.name}: "))))
        reading.after_part()


def read_stream(stream: "_Stream", name: str, reading: Reading) -> None:
    """Adds what one file says. Does not unpack archives. Raises InputError."""
    _read_unpacked(stream, stream.peek(SNIFF)[:SNIFF], name, reading)


def _read_unpacked(stream: "_Stream", head: bytes, name: str, reading: Reading) -> None:
    if not head:
        if PurePath(name).suffix not in TEXT_SUFFIXES:
            raise UnreadableInput(f"{name}: empty: its rank was killed before it could write")
        reading.empty.append(name)
    elif dump.looks_like_dump(head):
        reading.add_dump(name, stream)
    elif head.startswith(SUMMARY):
        from forkpoint.evidence.summary_file import add_summary  # noqa: PLC0415 - slow to import

        add_summary(stream, name, reading)
    elif b"\x00" in head:
        _read_past_nuls(stream, name, reading)
    elif _is_binary(head):
        raise UnreadableInput(f"{name}: neither a dump nor text; ignored")
    else:
        from forkpoint.evidence.text_files import read_text  # noqa: PLC0415 - its readers are slow to import

        text = read_text(stream, name, reading.names)
        reading.texts.append(text)
        reading.problems += text.problems


def _read_past_nuls(stream: "_Stream", name: str, reading: Reading) -> None:
    """A log that was truncated in place (logrotate's copytruncate) starts with NULs, up to the writer's old position."""
    rest = io.BufferedReader(cast("io.FileIO", WithoutNuls(stream)), SNIFF)
    head = rest.peek(SNIFF)[:SNIFF]
    if not head or dump.looks_like_dump(head):
        raise UnreadableInput(f"{name}: neither a dump nor text; ignored")
    _read_unpacked(rest, head, name, reading)


def _is_binary(head: bytes) -> bool:
    return len(head) - len(head.translate(None, _NOT_TEXT)) > len(head) // _FEW


_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_FEW = 50
"""A file with at most one control character in this many bytes counts as text."""
