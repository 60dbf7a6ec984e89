"""Raw lines of the case's logs: around a line, by text, by rank, by time, or the end."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.log_text import LogLine, find_file, last_lines, read_lines, text_files
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import MAX_FACTS, answer, fact, known_rank, lines_around, names
from forkpoint.agent.wire import Wire
from forkpoint.errors import UnreadableInput
from forkpoint.ingest.logs.lines import find_time, parse_line
from forkpoint.ingest.stamps import read_stamp
from forkpoint.model.ranks import name_ranks

_MAX_AROUND = 25
_USUAL = 5
_MAX_TEXT = 200
_LOOKED_AT = 1 << 26
"""Characters of one file that are parsed and cleaned to find what was asked for."""
_PREFIX = 200
_MAX_FILES = 256
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?")

_Time = tuple[int, ...]
_Wanted = Callable[[LogLine], bool]


class LogLinesArguments(Wire):
    file: str | None
    """As facts name it; null: all of them, or all of the rank's. All fields null: which files there are."""
    rank: int | None
    contains: str | None
    """Text of the line; upper and lower case are the same."""
    line: int | None
    """Lines around this one, whatever else is asked; needs a file."""
    around: int | None
    """So many before and after it; null: 5."""
    since: str | None
    """A time as logs print it: `2026-11-15 01:18:27`, `1115 01:18:27`, or `01:18:27`."""
    until: str | None


def log_lines(case: Case, asked: LogLinesArguments) -> Sequence[Fact]:
    files = _files(case, asked)
    if asked.line is not None:
        return _around(case, asked, files, asked.line)
    if asked == LogLinesArguments(file=None, rank=None, contains=None, line=None, around=None, since=None, until=None):
        return answer((fact(case, file, _tell_ranks(ranks)) for file, ranks in files.items()), "ask by rank")
    found = answer(_search(case, asked, files), "narrow it")
    if not found:
        raise Refused(f"no such line in {names([case.clean(file) for file in files])}")
    return found


def _search(case: Case, asked: LogLinesArguments, files: dict[str, tuple[int, ...]]) -> Iterator[Fact]:
    for file, ranks in islice(files.items(), _MAX_FILES):
        yield from _matching(case, asked, file, ranks)
    if len(files) > _MAX_FILES:
        yield Fact("left out", f"{len(files) - _MAX_FILES} more files were not looked at; name a rank or a file")


def _files(case: Case, asked: LogLinesArguments) -> dict[str, tuple[int, ...]]:
    known = text_files(case)
    if not known:
        raise Refused("this case has no files of text")
    if asked.file is not None:
        file = find_file(case, asked.file)
        if file is None:
            raise Refused(f"no such file in this case; there are {names([case.clean(name) for name in known])}")
        return {file: known[file]}
    if asked.rank is None:
        return known
    own = {file: ranks for file, ranks in known.items() if known_rank(case, asked.rank) in ranks}
    if not own:
        raise Refused(
            f"no log of rank {asked.rank} is in the evidence; there are {names([case.clean(n) for n in known])}"
        )
    return own


def _around(case: Case, asked: LogLinesArguments, files: dict[str, tuple[int, ...]], line: int) -> Sequence[Fact]:
    if asked.file is None:
        raise Refused("a line needs a file")
    (file,) = files
    around = lines_around(asked.around, _USUAL, _MAX_AROUND)
    try:
        shown = _until(read_lines(case, file, max(1, line - around)), line + around)
        found = answer((_fact(case, file, each) for each in shown), "ask for fewer lines around")
    except UnreadableInput as error:
        raise Refused(case.clean(str(error))) from error
    if not found:
        raise Refused(f"{case.clean(file)} has no line {line}")
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
                yield fact(
                    case, file, f"too much of it is alike to look through: what follows line {line.number} was not"
                )
                return
            # All of them: what tells the time must see every line.
            if all([test(line) for test in tests]):  # noqa: C419 as said
                yield _fact(case, file, line)
    except UnreadableInput as error:
        yield fact(case, file, str(error))


def _worth_a_look(case: Case, asked: LogLinesArguments, text: str | None) -> re.Pattern[bytes] | None:
    """None: every line. A line's time may be that of a line before it."""
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
    """In a file of several ranks a line's prefix tells whose it is; lines without one are left out."""
    if asked.rank is None or ranks == (asked.rank,):
        return None
    return lambda line: parse_line(line.text[:_PREFIX]).speaker.rank == asked.rank


def _in_time(asked: LogLinesArguments) -> _Wanted | None:
    """A line without a time belongs to the last one that has one."""
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
    """Month to second, or hour to second. No year: most logs print none."""
    if text is None:
        return None
    clock = _CLOCK.fullmatch(text.strip())
    if clock:
        return (int(clock[1]), int(clock[2]), int(clock[3] or 0))
    bound = _read_time(text.strip())
    if bound is None:
        raise Refused("a time is written as logs print it: `2026-11-15 01:18:27`, `1115 01:18:27` or `01:18:27`")
    return bound


def _read_time(printed: str | None) -> _Time | None:
    stamp = read_stamp(printed) if printed else None
    return (stamp.month, stamp.day, stamp.hour, stamp.minute, stamp.second or 0) if stamp else None


def _fact(case: Case, file: str, line: LogLine) -> Fact:
    return fact(case, f"{file} line {line.number}", line.text)


def _tell_ranks(ranks: tuple[int, ...]) -> str:
    return f"of {name_ranks(ranks)}" if ranks else "of no rank that is known"


LOG_LINES = Tool(
    name="log_lines",
    description=(
        "Raw lines of logs, kernel messages and stack files: around a line, containing a text, of a rank, in a time range, "
        "or the end of a file. All fields null: which files there are."
    ),
    arguments=LogLinesArguments,
    answer=log_lines,
)
