"""What logs say: failures in the order of time, and the program's own lines as one stream, in which equal lines of several ranks
are merged.

Lines that only some ranks printed, and numbers that differ between ranks in the same line, are kept first.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from forkpoint.brief.case import Case, plain_name, shortened
from forkpoint.brief.where import tell_chain
from forkpoint.evidence.text import find_time, read_stamp
from forkpoint.judge.facts.contrast import find_printed, split_line
from forkpoint.model.capture import Capture
from forkpoint.model.frames import up_to_script, user_frames
from forkpoint.model.log import QUIET, LogEvent, LogKind, PrintedLine, Work
from forkpoint.model.world import name_ranks

_RANGES = 6
_SLOTS = 6
_LONG = 130
_TOLD_ELSEWHERE = QUIET | {
    LogKind.GROUP_STATUS, LogKind.DUMPED, LogKind.DUMP_SIGNAL, LogKind.COLLECTIVE_STACK, LogKind.WATCHDOG_DIED,
}  # fmt: skip
_ENDS = (LogKind.LEAVING, LogKind.LEFT)
"""For each of these the first line is enough."""
_START = re.compile(
    r"^[\[(]?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?[ ,|:-]*|^\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[ ,|:-]+"
)
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")

Clock = tuple[int, ...]


def read_clock(text: str | None) -> Clock | None:
    stamp = read_stamp(text) if text else None
    return (stamp.month, stamp.day, stamp.hour, stamp.minute, stamp.second or 0) if stamp else None


def without_start(text: str) -> str:
    """Without the time at its start, and otherwise as printed: agents quote it."""
    return _START.sub("", text)


def _of_day(clock: Clock | None) -> str:
    return "{:02}:{:02}:{:02}".format(*clock[2:]) if clock else "no time "


# ---------------------------------------------------------------------------------------------------------------------
# Failures.


@dataclass(slots=True)
class _Told:
    event: LogEvent
    when: Clock | None
    ranks: set[int] = field(default_factory=set)
    last: Clock | None = None
    works: dict[int | None, set[int]] = field(default_factory=dict)
    """Calls that timed out, by number, with the ranks that report it."""


def tell_failures(case: Case) -> Iterator[str]:
    """The earliest first. The same line from several ranks is shown once, with the first place where it occurs."""
    found: dict[object, _Told] = {}
    for event, when in _dated(case.incident.capture.events):
        if event.kind in _TOLD_ELSEWHERE or (event.kind is LogKind.STORE and event.exception is None):
            continue
        key = (
            (event.kind,)
            if event.kind in _ENDS
            else (event.kind, event.work.op if event.work else _DIGITS.sub("#", event.text), user_frames(event.stack))
        )
        told = found.setdefault(key, _Told(event, when))
        told.ranks.update(() if event.rank is None else (event.rank,))
        if event.work is not None and event.rank is not None:
            told.works.setdefault(event.work.seq, set()).add(event.rank)
        if when is not None and (told.when is None or when < told.when):
            told.event, told.when = event, when
        told.last = max(filter(None, (told.last, when)), default=None)
    ordered = sorted(
        found.values(), key=lambda told: (told.when is None, told.when or (), told.event.file, told.event.line)
    )
    for told in ordered:
        yield from _tell_failure(case, told)


def _dated(events: Iterable[LogEvent]) -> Iterator[tuple[LogEvent, Clock | None]]:
    """A line without a time is no earlier than the one before it in its file."""
    last: dict[str, Clock] = {}
    for event in events:
        clock = read_clock(event.time)
        if clock is not None:
            last[event.file] = clock
        yield event, last.get(event.file)


def _tell_failure(case: Case, told: _Told) -> Iterator[str]:
    event = told.event
    who = name_ranks(told.ranks, _RANGES) if told.ranks else "rank unknown"
    until = f"..{_of_day(told.last)}" if told.last is not None and told.last != told.when else ""
    says = (
        _tell_works(event.work, told.works)
        if event.work is not None
        else f"|{shortened(case, without_start(event.text), _LONG)}"
    )
    yield f"{_of_day(told.when)}{until} {who} {event.kind} ({plain_name(case.name_inside(event.file))}:{event.line}) {says}"
    frames = up_to_script(user_frames(event.stack))
    if frames:
        yield f"   at {tell_chain(case, frames)}"


def _tell_works(work: Work, ranks: dict[int | None, set[int]]) -> str:
    slots = [f"seq {seq} ({name_ranks(those, _RANGES)})" for seq, those in list(ranks.items())[:_SLOTS]]
    more = f" and {len(ranks) - _SLOTS} more" if len(ranks) > _SLOTS else ""
    return f"{plain_name(work.op)} {', '.join(slots)}{more}, timeout {work.timeout_ms / 1000:g} s"


# ---------------------------------------------------------------------------------------------------------------------
# The program's own lines.


@dataclass(slots=True)
class SaidRow:
    """The same line, by its form, on several ranks: one moment of the program."""

    form: str
    says: dict[tuple[str, ...], list[tuple[int, str, int, str]]] = field(default_factory=dict)
    """Its numbers -> (rank, file, line, text)."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    at: tuple[object, ...] = ()
    differs_always: bool = False
    """Lines of this form have other numbers on every rank each time, so the difference means nothing."""

    @property
    def ranks(self) -> set[int]:
        return {rank for said in self.says.values() for rank, *_ in said}


_MANY = 150_000
"""Limit on compared lines, of all ranks together."""
_VARIANTS = 4
_NOBODY = -1
"""Used in place of a rank for lines whose rank is unknown."""


def tell_printed(case: Case) -> Iterator[str]:
    """In the order of time; of lines that repeat on all ranks only the first and the last are kept."""
    rows, heard = _read_rows(case)
    kept = _weigh(rows, heard)
    for row in kept:
        yield from _tell_row(case, row, heard)
    if len(kept) < len(rows):
        yield f"({len(rows) - len(kept)} lines left out that repeat in form)"


def _read_rows(case: Case) -> tuple[list[SaidRow], set[int]]:
    by_rank: dict[int, list[tuple[str, int, str]]] = defaultdict(list)
    failed = _first_failures(case.incident.capture.events)
    for file, rank, line in (*find_printed(case.incident), *_of_nobody(case.incident.capture)):
        if line.line < failed.get(file, line.line + 1) or find_time(line.text):
            by_rank[rank].append((file, line.line, line.text))
    most = max(12, _MANY // max(1, len(by_rank)))
    told: dict[str, dict[int, list[tuple[tuple[str, ...], str, int, str, Clock | None]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for rank, lines in by_rank.items():
        last: Clock | None = None
        for file, number, text in lines[-most:]:
            last = read_clock(find_time(text)) or last
            form, values = split_line(text)
            told[form][rank].append((values, file, number, text, last))
    rows = [row for form, of_form in told.items() for row in _rows_of(form, of_form)]
    return sorted(rows, key=lambda row: row.at), set(by_rank) - {_NOBODY}


def _of_nobody(capture: Capture) -> Iterator[tuple[str, int, PrintedLine]]:
    """Lines whose rank is not known, such as those of one console for all ranks."""
    owned: dict[str, set[int | None]] = defaultdict(set)
    for file, rank in capture.logs:
        owned[file].add(rank)
    for file, lines in sorted(capture.printed.items()):
        if owned[file] == {None} or len(owned[file]) > 1:
            yield from ((file, _NOBODY, line) for line in lines if line.rank is None)


def _first_failures(events: Iterable[LogEvent]) -> dict[str, int]:
    """By file. Lines without a time after it mostly belong to an error that is reported elsewhere."""
    found: dict[str, int] = {}
    for event in events:
        if event.is_failure:
            found[event.file] = min(event.line, found.get(event.file, event.line))
    return found


def _rows_of(
    form: str, told: dict[int, list[tuple[tuple[str, ...], str, int, str, Clock | None]]]
) -> Iterator[SaidRow]:
    """Lines belong together if they share a number that rises on every rank, such as the step; else by their ordinal."""
    widths = {len(values) for said in told.values() for values, *_ in said}
    width = widths.pop() if len(widths) == 1 else 0
    step = next((c for c in range(width) if all(_rises([v[c] for v, *_ in said]) for said in told.values())), None)
    made: dict[object, SaidRow] = {}
    for rank, said in told.items():
        for number, (values, file, line, text, clock) in enumerate(said):
            row = made.setdefault(values[step] if step is not None else number, SaidRow(form))
            row.says.setdefault(values, []).append((rank, file, line, text))
            if clock is not None:
                row.clocks[rank] = clock
            at = (clock is None, clock or (), line)
            row.at = min(row.at, at) if row.at else at
    yield from made.values()


def _rises(numbers: Sequence[str]) -> bool:
    return len(numbers) > 1 and all(n.isdigit() for n in numbers) and all(int(a) < int(b) for a, b in pairwise(numbers))


def _weigh(rows: Sequence[SaidRow], heard: set[int]) -> list[SaidRow]:
    """For each form: the first and last place at which ranks differ although they agree elsewhere; and lines that only some ranks
    printed.
    """
    forms: dict[str, list[SaidRow]] = defaultdict(list)
    for row in rows:
        forms[row.form].append(row)
    kept: set[int] = set()
    for some in forms.values():
        alike = [row for row in some if row.ranks == heard and len(row.says) == 1]
        partial = [row for row in some if row.ranks != heard]
        differing = [row for row in some if row.ranks == heard and len(row.says) > 1]
        for row in some:
            row.differs_always = (
                not alike and len(differing) > 1 and all(len(one.says) == len(heard) for one in differing)
            )
        shown = [some[0], some[-1]]
        if alike or partial:
            shown += differing[:2] + differing[-1:]
        shown += partial[:2] + partial[-2:]
        kept.update(map(id, shown))
    return [row for row in rows if id(row) in kept]


def _tell_row(case: Case, row: SaidRow, heard: set[int]) -> Iterator[str]:
    variants = sorted(row.says.items(), key=lambda item: (-len(item[1]), item[1][0][0]))
    when = _of_day(min(row.clocks.values())) if row.clocks else ""
    if row.clocks and max(row.clocks.values()) != min(row.clocks.values()):
        last = max(row.clocks, key=lambda rank: row.clocks[rank])
        when += f"..{_of_day(row.clocks[last])} (rank {last} last)"
    only = "only " if row.ranks < heard and 2 * len(row.ranks) <= len(heard) else ""
    most = 2 if row.differs_always else _VARIANTS
    shown = variants if len(variants) <= most else [*variants[: most // 2], *variants[-(most // 2) :]]
    for number, (_, said) in enumerate(shown):
        _, file, line, text = said[0]
        ranks = [one[0] for one in said]
        who = (
            "all"
            if len(ranks) == len(heard) > 1
            else name_ranks(ranks, _RANGES)
            if ranks != [_NOBODY]
            else "rank unknown"
        )
        head = f"{when} {only}" if not number else "   "
        yield (
            f"{head}{who} ({plain_name(case.name_inside(file))}:{line}) |{shortened(case, without_start(text), _LONG)}".strip(
                " "
            )
            if not number
            else f"{head}{who} |{shortened(case, without_start(text), _LONG)}"
        )
    if len(variants) > len(shown):
        yield f"   and {len(variants) - len(shown)} more values"
