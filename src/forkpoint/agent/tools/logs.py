"""Raw lines of the case's text files: around a line, by text, by rank, by time, or the end."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from forkpoint.agent.case import Wire, tool
from forkpoint.brief.case import MAX_FACTS, Case, Fact, QuestionRefused, answer, fact, known_rank, lines_around, names
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.evidence.archives import ArchiveMember, open_members
from forkpoint.evidence.files import SNIFF, STDIN, find_files, is_archive, open_file
from forkpoint.evidence.logs.lines import CHUNK, parse_line, read_chunks, split_lines
from forkpoint.evidence.text import find_time, read_stamp
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# The case's text files are read again here, because a capture keeps only the events in them.
#
# Only files that the capture names are opened, and only inside the given paths. Long lines are cut, and there is a limit on
# how much of a file is read.

READ_AT_MOST = 1 << 31
"""Bytes of one file."""
LONGEST = 1 << 14
"""Bytes of one line; a longer one is cut at the last space before."""


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int
    """Counted from 1, as evidence counts."""
    text: str
    """As in the file: pass it through `case.clean` before it is shown."""


def text_files(case: Case) -> dict[str, tuple[int, ...]]:
    """Text files that the capture names, with the ranks that wrote them. Sorted by name."""
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
    """By its name, by the name that was shown, or by the end of it if only one file matches."""
    known = {case.clean(file): file for file in text_files(case)}
    if name in known or name in known.values():
        return known.get(name, name)
    ending = [file for shown, file in known.items() if name and shown.endswith(f"/{name}")]
    return ending[0] if len(ending) == 1 else None


def line_at(case: Case, file: str, number: int) -> str | None:
    """One line, cleaned. None: there is no such file or line, or it cannot be read again."""
    known = find_file(case, file)
    if known is None or number < 1:
        return None
    try:
        found = next(read_lines(case, known, first=number), None)
    except UnreadableInput:
        return None
    return case.clean(found.text) if found is not None and found.number == number else None


def read_lines(case: Case, file: str, first: int = 1, containing: re.Pattern[bytes] | None = None) -> Iterator[LogLine]:
    """Lines from `first` on; with `containing`, only those that match. Raises UnreadableInput."""
    for chunk in _read_chunks(case, file):
        if chunk.after > first and (containing is None or containing.search(chunk.data)):
            yield from _split(chunk, first, containing)


def last_lines(case: Case, file: str) -> list[LogLine]:
    """The end of a file, at most two chunks. Raises UnreadableInput."""
    end = deque(_read_chunks(case, file), maxlen=2)
    return [line for chunk in end for line in _split(chunk, 1, None)]


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    """Number of its first line."""
    after: int
    """Number of the line after its last one."""
    goes_on: bool
    """Its first line is the rest of a line that began in the chunk before, and is skipped."""
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
    """Cut between words: half a secret would not be recognised and masked."""
    if len(raw) > LONGEST:
        head = raw[:LONGEST]
        raw = (head[: head.rfind(b" ")] if b" " in head else head) + "…".encode()
    return raw.decode("utf-8", "replace").rstrip("\r")


def _opened(file: str, paths: tuple[str, ...]) -> Iterator[BinaryIO]:
    """Opens the file, plain or inside an archive. Yields nothing for a pipe, which cannot be read twice."""
    if any(_lies_in(file, path) for path in paths):
        with open_file(file, paths) as stream:
            if not is_archive(stream.peek(SNIFF)):
                yield cast("BinaryIO", stream)
                return
    for path in find_files([path for path in paths if path != STDIN]):
        if Path(path).is_file() and _may_hold(path, file):
            with open_file(path, paths) as stream:
                if is_archive(stream.peek(SNIFF)):
                    yield from (
                        m.stream for m in open_members(stream, path) if isinstance(m, ArchiveMember) and m.name == file
                    )


def _lies_in(file: str, given: str) -> bool:
    """The reader, given this path, reads the plain file: it follows no links to folders and enters no hidden ones.

    Checked because the name of an archive member may also be that of a file outside, reached through a link.
    """
    path, root = Path(file), Path(given)
    if not path.is_file() or not path.is_relative_to(root):
        return False
    inside = path.relative_to(root)
    hidden = any(part.startswith(".") for part in inside.parts)
    return path == root or (not hidden and path.parent.resolve() == root.resolve() / inside.parent)


def _may_hold(path: str, file: str) -> bool:
    """Members are named after their archive, without suffixes such as `.gz`."""
    folder, slash, name = path.rpartition("/")
    return file.startswith(f"{folder}{slash}{name.partition('.')[0]}")


# ---------------------------------------------------------------------------------------------------------------------
# Raw lines of the case's logs: around a line, by text, by rank, by time, or the end.

_MAX_AROUND = 25
_USUAL = 5
_MAX_TEXT = 200
_LOOKED_AT = 1 << 26
"""Characters of one file that are parsed and cleaned per search."""
_PREFIX = 200
_MAX_FILES = 256
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?")

_Time = tuple[int, ...]
_Wanted = Callable[[LogLine], bool]


class LogLinesArguments(Wire):
    file: str | None = None
    """As facts name it."""
    rank: int | None = None
    contains: str | None = None
    line: int | None = None
    """Lines around this one of a file."""
    around: int | None = None
    since: str | None = None
    """`2026-11-15 01:18:27`, or `01:18:27`."""
    until: str | None = None


@tool(
    "Raw lines of logs, kernel messages and stack files: around a line, with a text, of a rank, in a time range, or the end "
    "of a file. No arguments: which files there are."
)
def log_lines(case: Case, asked: LogLinesArguments) -> Sequence[Fact]:
    files = _files(case, asked)
    if asked.line is not None:
        return _around(case, asked, files, asked.line)
    if asked == LogLinesArguments():
        return answer((fact(case, file, _tell_ranks(ranks)) for file, ranks in files.items()), "ask by rank")
    found = answer(_search(case, asked, files), "narrow it")
    if not found:
        raise QuestionRefused(f"no such line in {names([case.clean(file) for file in files])}")
    return found


def _search(case: Case, asked: LogLinesArguments, files: dict[str, tuple[int, ...]]) -> Iterator[Fact]:
    for file, ranks in islice(files.items(), _MAX_FILES):
        yield from _matching(case, asked, file, ranks)
    if len(files) > _MAX_FILES:
        yield Fact("left out", f"{len(files) - _MAX_FILES} more files were not searched; name a rank or a file")


def _files(case: Case, asked: LogLinesArguments) -> dict[str, tuple[int, ...]]:
    known = text_files(case)
    if not known:
        raise QuestionRefused("this case has no text files")
    if asked.file is not None:
        file = find_file(case, asked.file)
        if file is None:
            raise QuestionRefused(f"no such file in this case; there are {names([case.clean(name) for name in known])}")
        return {file: known[file]}
    if asked.rank is None:
        return known
    own = {file: ranks for file, ranks in known.items() if known_rank(case, asked.rank) in ranks}
    if not own:
        raise QuestionRefused(
            f"no log of rank {asked.rank} is in the evidence; there are {names([case.clean(n) for n in known])}"
        )
    return own


def _around(case: Case, asked: LogLinesArguments, files: dict[str, tuple[int, ...]], line: int) -> Sequence[Fact]:
    if asked.file is None:
        raise QuestionRefused("a line needs a file")
    (file,) = files
    around = lines_around(asked.around, _USUAL, _MAX_AROUND)
    try:
        shown = _until(read_lines(case, file, max(1, line - around)), line + around)
        found = answer((_fact(case, file, each) for each in shown), "ask for fewer lines around")
    except UnreadableInput as error:
        raise QuestionRefused(case.clean(str(error))) from error
    if not found:
        raise QuestionRefused(f"{case.clean(file)} has no line {line}")
    return found


def _until(lines: Iterator[LogLine], last: int) -> Iterator[LogLine]:
    for line in lines:
        if line.number > last:
            return
        yield line


def _matching(case: Case, asked: LogLinesArguments, file: str, ranks: tuple[int, ...]) -> Iterator[Fact]:
    """Searches the cleaned text: a search must not reveal what was masked."""
    text = asked.contains[:_MAX_TEXT] if asked.contains else None
    tests = [test for test in (_said_by(asked, ranks), _in_time(asked), _says(case, text)) if test is not None]
    try:
        if text is None and asked.since is None and asked.until is None:
            lines = [line for line in last_lines(case, file) if all(test(line) for test in tests)]
            yield from (_fact(case, file, line) for line in lines[-MAX_FACTS // 2 :])
            return
        looked_at = 0
        for line in read_lines(case, file, containing=_worth_a_look(case, asked, text)):
            looked_at += len(line.text)
            if looked_at > _LOOKED_AT:
                yield fact(case, file, f"too many lines to search: nothing after line {line.number} was searched")
                return
            # Run all tests: the one for time must see every line.
            if all([test(line) for test in tests]):  # noqa: C419 as said
                yield _fact(case, file, line)
    except UnreadableInput as error:
        yield fact(case, file, str(error))


def _worth_a_look(case: Case, asked: LogLinesArguments, text: str | None) -> re.Pattern[bytes] | None:
    """A cheap filter on raw lines. None with a time range: a line may take its time from one before it."""
    if text is None or asked.since is not None or asked.until is not None:
        return None
    return re.compile(re.escape(_as_written(case, text).encode("utf-8", "replace")), re.IGNORECASE)


def _says(case: Case, text: str | None) -> _Wanted | None:
    return None if text is None else lambda line: text.lower() in case.clean(line.text).lower()


def _as_written(case: Case, text: str) -> str:
    """Pseudonyms replaced by the originals in the file."""
    for pseudonym, original in sorted(case.redactor.map.items(), reverse=True):
        text = text.replace(pseudonym, original)
    return text


def _said_by(asked: LogLinesArguments, ranks: tuple[int, ...]) -> _Wanted | None:
    """In a file of several ranks, the prefix says which rank wrote a line; lines without one are left out."""
    if asked.rank is None or ranks == (asked.rank,):
        return None
    return lambda line: parse_line(line.text[:_PREFIX]).speaker.rank == asked.rank


def _in_time(asked: LogLinesArguments) -> _Wanted | None:
    """A line without a time has the time of the last line with one."""
    if asked.since is None and asked.until is None:
        return None
    since, until = _bound(asked.since), _bound(asked.until)
    latest: _Time | None = None

    def wanted(line: LogLine) -> bool:
        nonlocal latest
        latest = _read_time(find_time(line.text[:_PREFIX])) or latest
        if latest is None:
            return False
        return (since is None or latest[-len(since) :] >= since) and (until is None or latest[-len(until) :] <= until)

    return wanted


def _bound(text: str | None) -> _Time | None:
    """(month, ..., second) or (hour, minute, second). No year, because most logs print none."""
    if text is None:
        return None
    clock = _CLOCK.fullmatch(text.strip())
    if clock:
        return (int(clock[1]), int(clock[2]), int(clock[3] or 0))
    bound = _read_time(text.strip())
    if bound is None:
        raise QuestionRefused("write the time as logs do: `2026-11-15 01:18:27`, `1115 01:18:27` or `01:18:27`")
    return bound


def _read_time(printed: str | None) -> _Time | None:
    stamp = read_stamp(printed) if printed else None
    return (stamp.month, stamp.day, stamp.hour, stamp.minute, stamp.second or 0) if stamp else None


def _fact(case: Case, file: str, line: LogLine) -> Fact:
    return fact(case, f"{file} line {line.number}", line.text)


def _tell_ranks(ranks: tuple[int, ...]) -> str:
    return f"of {name_ranks(ranks)}" if ranks else "rank unknown"
