"""Live stacks in whichever format: in a file of their own, or in a log between lines of others."""

from array import array
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from forkpoint.evidence.stacks import debug_server, faulthandler_text, gdb_text, py_spy_json, py_spy_text
from forkpoint.evidence.stacks.threads import RankStacks, Thread, ThreadKind, has_python
from forkpoint.evidence.text import without_escapes
from forkpoint.model.log import Speaker

# ---------------------------------------------------------------------------------------------------------------------
# A file of live stacks, in whichever format.

FORMATS = (faulthandler_text, py_spy_text, gdb_text)
_WITH_PREAMBLE = (faulthandler_text, py_spy_text, debug_server)
LINE_LIMIT = 8000
"""A line is cut there: gdb prints C++ names of some thousand characters."""


def looks_like_stacks(head: str) -> bool:
    """The file begins with a stack, after at most what the format's tool prints first. A log with stacks in its middle
    is still a log.
    """
    if py_spy_json.looks_like_json(head):
        return True
    talks = False
    for line in _lines(head):
        if any(form.begins_stacks(line) for form in FORMATS):
            return True
        talks = talks or gdb_text.begins_talk(line)
        if line.strip() and not talks and not any(form.is_preamble(line) for form in _WITH_PREAMBLE):
            return False
    return False


def read_live_stacks(text: str, file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in the text. `rank` is whose file it is; a debug server's file says itself whose each block is."""
    threads = py_spy_json.read_threads(text) if py_spy_json.looks_like_json(text) else []
    if threads:
        return _of_rank(rank, file, threads)
    if not any(mark in text for form in FORMATS for mark in form.MARKS):
        return ()
    return read_lines(_lines(text), file, rank)


def read_lines(lines: Sequence[str], file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in lines that follow each other."""
    blocks = debug_server.split_blocks(lines)
    if not blocks:
        return _of_rank(rank, file, _read_threads(lines, 1))
    found = [_of_rank(owner, file, _read_threads(block, first)) for owner, first, block in blocks]
    return tuple(stacks for ranks in found for stacks in ranks)


def _of_rank(rank: int | None, file: str, threads: Sequence[Thread]) -> tuple[RankStacks, ...]:
    """Nothing for a rank of which no frame is known."""
    if not any(thread.stack for thread in threads):
        return ()
    return (RankStacks(rank, file, tuple(threads)),)


def _read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    found = [thread for form in FORMATS for thread in form.read_threads(lines, first)]
    return sorted(found, key=lambda thread: thread.line)


def _lines(text: str) -> list[str]:
    return [line[:LINE_LIMIT].rstrip("\r") for line in without_escapes(text).split("\n")]


# ---------------------------------------------------------------------------------------------------------------------
# Stacks inside a log, between lines of other ranks: collected per speaker, without launchers' prefixes.
#
#     3: Thread 7085 (active): "MainThread"
#     0: step 120 loss 2.17
#     3:     all_reduce (train.py:40)

MARKS = (
    b"(most recent call first):",
    b' (idle): "',
    b' (active): "',
    b" (active+gil)",
    b"(Thread 0x",
    *(b" (LWP %d" % digit for digit in range(1, 10)),
    b"#0  0x0000",
    b"=== Rank ",
)
"""A line that begins stacks in a log contains one of them."""
_OTHERS_AT_MOST = 50
"""Consecutive lines of a speaker that are not part of a stack end it."""
_IDLE_AT_MOST = 5_000
"""Lines of other speakers that may come between two lines of a stack."""
_EACH_AT_MOST = 20_000
"""Lines of one speaker: some hundred threads. Of more, the last count: a program may dump every few minutes."""
_ALL_AT_MOST = 1_000_000
_SHARED_AT_MOST = 100_000


class _Collected(Struct):
    """The lines of one speaker."""

    last: int
    """The number of the last line that may be part of a stack."""
    others: int = 0
    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    texts: list[str] = field(default_factory=list[str])
    tight: bool = False
    """A message follows the prefix at once, so a blank after the prefix is the message's own."""


class StackLines:
    """Takes the lines of a log, and keeps those that belong to stacks."""

    def __init__(self) -> None:
        self._all: dict[Speaker, _Collected] = {}
        self._open: set[Speaker] = set()
        self._shared: dict[str, str] = {}
        """Ranks stand at the same few places: most texts are kept once."""
        self._kept = 0
        self._left_out = 0

    @property
    def open(self) -> bool:
        """Whether the next lines may belong to a stack."""
        return bool(self._open)

    def take(self, speaker: Speaker, message: str, number: int, *, blank: bool) -> None:
        """The next line of a speaker. `blank`: one stood between the prefix and the message."""
        message = message[:LINE_LIMIT].rstrip("\r")
        if speaker not in self._open:
            if not _begins(message):
                return
            self._open.add(speaker)
        collected = self._all.setdefault(speaker, _Collected(number))
        belongs = message.startswith((" ", "#", "Thread ")) or not message or _begins(message)
        collected.others = 0 if belongs else collected.others + 1
        if belongs:
            collected.last = number
        if collected.others > _OTHERS_AT_MOST:
            self._open.discard(speaker)
        elif self._kept >= _ALL_AT_MOST:
            self._left_out += belongs
        elif collected.others <= 1:  # the first of them ends a thread; more say nothing
            self._keep(collected, message, number, blank=blank)

    def expire(self, number: int) -> None:
        """Closes the stacks of speakers that have been silent for long."""
        self._open -= {speaker for speaker in self._open if number - self._all[speaker].last > _IDLE_AT_MOST}

    def finish(self, file: str, rank_of: Callable[[Speaker], int | None]) -> Iterator[RankStacks]:
        """The stacks of all speakers, those of a debug server by the ranks that it names."""
        for speaker, collected in self._all.items():
            strip = "" if collected.tight else " "
            lines = [text.removeprefix(strip) for text in collected.texts]
            for stacks in read_lines(lines, file, rank_of(speaker)):
                threads = tuple(replace(t, line=collected.numbers[t.line - 1]) for t in stacks.threads)
                yield replace(stacks, threads=threads, rank=None if _is_of_many(speaker, threads) else stacks.rank)

    def problem(self) -> str | None:
        if not self._left_out:
            return None
        return f"holds more than {_ALL_AT_MOST} lines of stacks; {self._left_out} were left out. Give each rank a separate file"

    def _keep(self, collected: _Collected, message: str, number: int, *, blank: bool) -> None:
        if len(collected.texts) >= _EACH_AT_MOST:
            half = _EACH_AT_MOST // 2
            del collected.numbers[:half], collected.texts[:half]
            self._kept -= half
        collected.tight = collected.tight or (bool(message) and not blank)
        text = " " + message if blank else message
        if len(self._shared) > _SHARED_AT_MOST:
            self._shared.clear()
        collected.numbers.append(number)
        collected.texts.append(self._shared.setdefault(text, text))
        self._kept += 1


def _is_of_many(speaker: Speaker, threads: tuple[Thread, ...]) -> bool:
    """A launcher's label may stand for all processes of a node; a process has one main thread."""
    mains = [t for t in threads if t.kind is ThreadKind.MAIN and has_python(t.stack)]
    return speaker.task is not None and speaker.rank is None and len(mains) > 1


def _begins(message: str) -> bool:
    return debug_server.begins_block(message) or any(form.begins_stacks(message) for form in FORMATS)
