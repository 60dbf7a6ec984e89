"""Reads live stacks in any format: from a file of their own, or from a log, between other lines."""

import re
from array import array
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from forkpoint.evidence.stacks import faulthandler_text, gdb_text, py_spy
from forkpoint.evidence.stacks.threads import RankStacks, Thread, ThreadKind, has_python
from forkpoint.evidence.text import without_escapes
from forkpoint.model.log import Speaker

# ---------------------------------------------------------------------------------------------------------------------
# A file of live stacks, in any format.

FORMATS = (faulthandler_text, py_spy, gdb_text)
LINE_LIMIT = 8000
"""Longer lines are cut: gdb prints C++ names of thousands of characters."""


def looks_like_stacks(head: str) -> bool:
    """Whether the file begins with a stack, possibly after other output of the same tool. A log with stacks in the middle is
    still a log.
    """
    if py_spy.looks_like_json(head):
        return True
    talks = False
    for line in _lines(head):
        if any(form.begins_stacks(line) for form in FORMATS):
            return True
        talks = talks or gdb_text.begins_talk(line)
        if line.strip() and not talks and not _is_preamble(line):
            return False
    return False


def read_live_stacks(text: str, file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in the text. `rank`: the rank of the file; a file from a debug server states the rank of each block."""
    threads = py_spy.read_json_threads(text) if py_spy.looks_like_json(text) else []
    if any(thread.stack for thread in threads):
        return (RankStacks(rank, file, tuple(threads)),)
    if not any(mark in text for form in FORMATS for mark in form.MARKS):
        return ()
    return read_lines(_lines(text), file, rank)


def read_lines(lines: Sequence[str], file: str, rank: int | None) -> tuple[RankStacks, ...]:
    """All threads in consecutive lines."""
    blocks = _split_ranks(lines) or _split_processes(lines, rank) or [_Block(rank, None, 1, lines)]
    read = [(block, _read_threads(block.lines, block.first)) for block in blocks]
    return tuple(
        RankStacks(block.rank, file, tuple(threads), block.pid)
        for block, threads in read
        if any(thread.stack for thread in threads)
    )


def _is_preamble(line: str) -> bool:
    return faulthandler_text.is_preamble(line) or py_spy.is_preamble(line) or _is_server_preamble(line)


def _read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    found = [thread for form in FORMATS for thread in form.read_threads(lines, first)]
    return sorted(found, key=lambda thread: thread.line)


def _lines(text: str) -> list[str]:
    return [line[:LINE_LIMIT].rstrip("\r") for line in without_escapes(text).split("\n")]


# ---------------------------------------------------------------------------------------------------------------------
# What torch's debug server writes (`stacks_*.txt`, `pyspy_dump_*.txt`): a block per rank, each in another format.
#
#     === Rank 0: http://node-1:48079/handler/dump_traceback? ===
#     Current thread 0x00007fd4037fe6c0 (most recent call first):
#       <no Python frame>
#
# The number is the global rank. A rank that did not answer has `Error: 500` in its block; such ranks are also listed on
# top (`PARTIAL DATA: 1/2 workers responded`). People who put several stacks into one file write headings of their own:
# `# rank 0 pid 26262`, `--- rank 3 ---`.

_BLOCK = re.compile(r"[#=*>-]{1,20} {0,2}\[?(?:global[ _-]?)?[Rr]ank(?:[ _:=#]{0,2}|-)(\d{1,7})\b.{0,2000}$")
_SERVER_PREAMBLE = re.compile(rf"{_BLOCK.pattern}|PARTIAL DATA: \d|  Rank \d{{1,7}}: |Error: \d{{3}}\s*$")


class _Block(Struct, frozen=True):
    """The part of a file that is about one process."""

    rank: int | None
    pid: int | None
    first: int
    """The number of its first line in the file."""
    lines: Sequence[str]


def _begins_block(line: str) -> bool:
    return line[:1] in "#=*>-" and bool(_BLOCK.match(line))


def _is_server_preamble(line: str) -> bool:
    return bool(_SERVER_PREAMBLE.match(line))


def _split_ranks(lines: Sequence[str]) -> list[_Block]:
    """One block per rank; the last one of a rank that has two (two dumps in one file). Lines before the first block are skipped."""
    found = [(number, _BLOCK.match(line)) for number, line in enumerate(lines) if _begins_block(line)]
    starts = [(number, int(match[1])) for number, match in found if match]
    ends = [number for number, _ in starts[1:]]
    blocks: dict[int, _Block] = {}
    for (start, rank), end in zip(starts, [*ends, len(lines)], strict=False):
        blocks[rank] = _Block(rank, None, start + 2, lines[start + 1 : end])
    return [blocks[rank] for rank in sorted(blocks)]


# ---------------------------------------------------------------------------------------------------------------------
# Several processes in one file, as a loop over py-spy writes them.
#
#     Process 11: python -m rl.ppo --rank 1 --world 8
#
# A rank in the command counts if every process has one of its own: launchers pass `--rank` for a node, too.

_PROCESS = re.compile(r"Process (\d{1,9}): (.{0,4000})$")
_RANK_ARGUMENT = re.compile(r"(?:^|\s)(?:--(?:global[-_])?rank[ =]|RANK=)(\d{1,7})(?=\s|$)")


def _split_processes(lines: Sequence[str], rank: int | None) -> list[_Block]:
    """One block per process, its children included; the last one of a process that has two. `rank`: of the file, if it has just one."""
    starts = [
        (number, match)
        for number, line in enumerate(lines)
        if (match := _PROCESS.match(line)) and not _is_child(number, lines)
    ]
    ends = [number for number, _ in starts[1:]]
    found = {
        int(match[1]): _Block(_rank_argument(match[2]), int(match[1]), start + 1, lines[start:end])
        for (start, match), end in zip(starts, [*ends, len(lines)], strict=False)
    }
    if len(found) == 1:
        return [replace(block, rank=rank) for block in found.values()]
    ranks = {block.rank for block in found.values()} - {None}
    sure = len(ranks) == len(found)
    return [block if sure else replace(block, rank=None) for block in found.values()]


def _is_child(number: int, lines: Sequence[str]) -> bool:
    """Below the command come the version of Python and, for a child, its parent."""
    return any(line.startswith("Parent Process ") for line in lines[number + 1 : number + 3])


def _rank_argument(command: str) -> int | None:
    found = _RANK_ARGUMENT.search(command)
    return int(found[1]) if found else None


# ---------------------------------------------------------------------------------------------------------------------
# Stacks inside a log, between lines of other ranks: collected per speaker, without launcher prefixes.
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
"""Every line that begins stacks in a log contains one of them."""
_OTHERS_AT_MOST = 50
"""After more consecutive lines of a speaker that are not part of a stack, the stack is over."""
_IDLE_AT_MOST = 5_000
"""Lines of other speakers that may come between two lines of a stack."""
_EACH_AT_MOST = 20_000
"""Lines per speaker: some hundred threads. Of more, the last are kept: a program may dump every few minutes."""
_ALL_AT_MOST = 1_000_000
_SHARED_AT_MOST = 100_000


class _Collected(Struct):
    """The collected lines of one speaker."""

    last: int
    """The number of the last line that may be part of a stack."""
    others: int = 0
    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    texts: list[str] = field(default_factory=list[str])
    tight: bool = False
    """The prefix is not followed by a space, so a space after it belongs to the message."""


class StackLines:
    """Collects the lines of a log that belong to stacks."""

    def __init__(self) -> None:
        self._all: dict[Speaker, _Collected] = {}
        self._open: set[Speaker] = set()
        self._shared: dict[str, str] = {}
        """Interns texts: most ranks have the same few stacks."""
        self._kept = 0
        self._left_out = 0

    @property
    def open(self) -> bool:
        """Whether the next lines may belong to a stack."""
        return bool(self._open)

    def take(self, speaker: Speaker, message: str, number: int, *, blank: bool) -> None:
        """Takes the next line of a speaker. `blank`: there was a space between the prefix and the message."""
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
        elif collected.others <= 1:  # the first other line ends a thread; further ones are not needed
            self._keep(collected, message, number, blank=blank)

    def expire(self, number: int) -> None:
        """Closes the stacks of speakers that have printed nothing for many lines."""
        self._open -= {speaker for speaker in self._open if number - self._all[speaker].last > _IDLE_AT_MOST}

    def finish(self, file: str, rank_of: Callable[[Speaker], int | None]) -> Iterator[RankStacks]:
        """The stacks of all speakers; for a debug server's blocks, with the ranks that it states."""
        for speaker, collected in self._all.items():
            strip = "" if collected.tight else " "
            lines = [text.removeprefix(strip) for text in collected.texts]
            for stacks in read_lines(lines, file, rank_of(speaker)):
                threads = tuple(replace(t, line=collected.numbers[t.line - 1]) for t in stacks.threads)
                yield replace(stacks, threads=threads, rank=None if _is_of_many(speaker, threads) else stacks.rank)

    def problem(self) -> str | None:
        if not self._left_out:
            return None
        return f"has more than {_ALL_AT_MOST} lines of stacks; {self._left_out} were left out. Give each rank a separate file"

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
    """A launcher's label may cover all processes of a node. Several main threads show that."""
    mains = [t for t in threads if t.kind is ThreadKind.MAIN and has_python(t.stack)]
    return speaker.task is not None and speaker.rank is None and len(mains) > 1


def _begins(message: str) -> bool:
    return _begins_block(message) or any(form.begins_stacks(message) for form in FORMATS)
