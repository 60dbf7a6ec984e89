"""Stacks inside a log, between lines of other ranks: collected per speaker, without launchers' prefixes.

3: Thread 7085 (active): "MainThread"
0: step 120 loss 2.17
3:     all_reduce (train.py:40)
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from forkpoint.ingest.live_stacks import debug_server
from forkpoint.ingest.live_stacks.read import FORMATS, LINE_LIMIT, read_lines
from forkpoint.ingest.live_stacks.threads import RankStacks, Thread, ThreadKind, has_python
from forkpoint.model.log import Speaker

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


@dataclass(slots=True)
class _Collected:
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
