"""Reads files in a child process with limits: if a file crashes it, only that file is lost.

The child is a fork, so nothing has to be imported again. It reads the files in order and writes what each says, as packed
records and table entries, to memory that both share; if it dies, another child continues after that file. A process with
several threads cannot fork safely and reads the files itself, like `--in-process`.
"""

import gc
import os
import resource
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from forkpoint.errors import UnreadableInput
from forkpoint.evidence.files import is_url
from forkpoint.evidence.landlock import give_up_rights
from forkpoint.evidence.messages import ADDERS, DONE, MESSAGE_HEAD, MessageKind, Unsent, message, messages
from forkpoint.evidence.shared_buffer import FillingSide, SharedBuffer
from forkpoint.model.capture import Problem
from forkpoint.model.layout import I64

if TYPE_CHECKING:
    from forkpoint.evidence.reading import Reading

MEMORY = 768 << 20
"""Bytes that a child may use in addition to what it had at the fork."""
OPEN_FILES = 256
CPU_S = 15
"""CPU time for one file at most; a file larger than `_LARGE` bytes gets one more second per `_PER_SECOND` bytes."""
_LARGE, _PER_SECOND = 64 << 20, 1 << 20
_SHARE_S, _SHARE_PER_SECOND = 0.25, 3 << 20
"""What any file may take: somewhat longer than Python needs to decode a dump of its size. `_SHARES_S` may reduce it."""
_SHARES_S = 9.0
"""The sum of these shares is at most this, for files of `_LARGE` bytes together; one more second per `_PER_SECOND` bytes beyond."""
_SPARE_S = 8.0
"""What all files together may take beyond their shares: a small file that unpacks to a lot needs it, and ten such files share it."""
_LEAST_S = 0.05
"""A file that may take less is not read. A child that died is charged this much, which is about what starting the next one takes."""
OUTPUT = 256 << 20
"""Bytes that the children may send, in addition to the size of the files."""
_NEARLY_S = 0.01
"""A file's time may be this much shorter than it should be."""
_STARTS_PROGRAM_S = 0.0005
"""The time that this process needs to start a program."""
_SPARE = struct.Struct("<d")
_WRITE_AT = 1 << 16
"""Bytes of messages that are collected before they are written."""
_PROGRESS_STEP = 1 << 20
"""Bytes between two reports of progress."""
_PROGRESS_S = 0.1
"""Seconds between two reports of progress through smaller files."""


File = tuple[str, str]
"""Path, and name in reports."""
Count = Callable[[int], None]
"""Called with the number of bytes of a file as they are read."""
Begin = Callable[[str], Count]
"""Called with the path of a file before it is read."""


class ReadOne(Protocol):
    def __call__(self, file: File, reading: "Reading", *, count: Count | None) -> None:
        """Adds what a file says, and any problem with it."""


def can_confine() -> bool:
    return threading.active_count() == 1


def read_confined(files: Sequence[File], reading: "Reading", read_one: ReadOne, begin: Begin | None) -> None:
    """Adds what the files say. `begin`: for reporting progress."""
    done, budget = 0, ReadingBudget([_size(path) for path, _ in files])
    while done < len(files):
        child = _Child(files, done, reading, read_one, budget, counts=begin is not None)
        try:
            done = child.take(files, done, reading, begin)
        finally:
            ended = child.end()
        if done < len(files):
            reading.problems.append(Problem(files[done][1], _why(ended, budget.most_s(done))))
            if -ended in _CPU_SIGNALS:
                budget.use(done, budget.most_s(done))
            budget.spare_s = max(0.0, budget.spare_s - _LEAST_S)
            done += 1


_CPU_SIGNALS = (signal.SIGXCPU, signal.SIGPROF)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a URL, or standard input
        return _LARGE


class ReadingBudget:
    """CPU time and output of one reading. Each file has a share of the time by its size; beyond it, all files use `spare_s`."""

    def __init__(self, sizes: Sequence[int]) -> None:
        shares = [_SHARE_S + size / _SHARE_PER_SECOND for size in sizes]
        scale = min(1.0, (_SHARES_S + _beyond(sum(sizes))) / max(sum(shares), _LEAST_S))
        self._shares = [share * scale for share in shares]
        self._most = [CPU_S + _beyond(size) if size > _LARGE else CPU_S for size in sizes]
        self.spare_s = _SPARE_S
        self.room = OUTPUT + sum(sizes)

    def most_s(self, place: int) -> float:
        """CPU time for the file at this place, if it is read next."""
        return min(self._most[place], self._shares[place] + self.spare_s)

    def allows(self, place: int) -> bool:
        return self.most_s(place) >= _LEAST_S and self.room > 0

    def use(self, place: int, used_s: float) -> None:
        self.spare_s = max(0.0, self.spare_s - max(0.0, used_s - self._shares[place]))


def _beyond(size: int) -> float:
    """Seconds added for large inputs."""
    return max(0, size - _LARGE) / _PER_SECOND


def _why(status: int, most_s: float) -> str:
    """Why a child ended, as a problem of the file that it was reading."""
    by = -status
    if by in _CPU_SIGNALS:
        return f"took more than {most_s:.0f} s to read; the rest of it is left out. Use --in-process if you trust it"
    reason = f"signal {signal.Signals(by).name}" if by in set(signal.Signals) else f"exit code {status}"
    return (
        f"crashed the process that read it ({reason}); left out. Check where it came from before you open it otherwise"
    )


class _Child:
    """Reads the files from `first` on."""

    def __init__(
        self,
        files: Sequence[File],
        first: int,
        reading: "Reading",
        read_one: ReadOne,
        budget: ReadingBudget,
        *,
        counts: bool,
    ) -> None:
        self._budget = budget
        shared = SharedBuffer()
        self._pid = os.fork()
        if self._pid == 0:
            _work(shared, lambda to: _send_files(files, first, reading, read_one, to, budget, counts=counts), files)
        self._from = shared.emptying_side()
        self._works = True

    def take(self, files: Sequence[File], done: int, reading: "Reading", begin: Begin | None) -> int:
        """Adds what the child sends until it ends. Returns how many files are done; `done` were done before."""
        count = begin(files[done][0]) if begin else None
        for kind, data in self._messages():
            if kind == DONE[0]:
                done += 1
                count = begin(files[done][0]) if begin and done < len(files) else None
            elif kind == MessageKind.SPARE:
                self._budget.spare_s = _SPARE.unpack(data)[0]
            elif kind == MessageKind.PROGRESS:
                if count:
                    count(I64.unpack(data)[0])
            else:
                ADDERS[kind](data, reading)
        return done

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """Until the child ends. A message that was not completely written is dropped."""
        pieces, held, needed = list[bytes](), 0, MESSAGE_HEAD.size
        while self._works:
            taken, self._works = self._from.take()
            pieces.append(taken)
            held += len(taken)
            self._budget.room -= len(taken)
            if held < needed:
                continue
            data, at = taken if len(pieces) == 1 else b"".join(pieces), 0
            while at + (needed := MESSAGE_HEAD.size) <= held:
                kind, size = MESSAGE_HEAD.unpack_from(data, at)
                if at + (needed := MESSAGE_HEAD.size + size) > held:
                    break
                yield kind, data[at + MESSAGE_HEAD.size : at + needed]
                at += needed
            pieces, held = [data[at:]], held - at

    def end(self) -> int:
        """Its exit code, or minus the signal that ended it. A child that is still working is stopped."""
        self._from.close()
        if self._works:
            os.kill(self._pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


# ---------------------------------------------------------------------------------------------------------------------
# Inside the child.


def _work(shared: SharedBuffer, send: Callable[[FillingSide], None], files: Sequence[File]) -> NoReturn:
    """Exits with `os._exit`: the parent's exit handlers and stream buffers must not run in the child."""
    try:
        gc.freeze()
        to = shared.filling_side()
        give_up_rights(network=not any("://" in path and is_url(path) for path, _ in files))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        _limit()
        send(to)
        os._exit(0)
    finally:
        os._exit(1)


def _limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    held = int(_read_statm().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (_within(held + MEMORY, most), most))
    for limit, value in ((resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_CORE, 0)):
        _, most = resource.getrlimit(limit)
        resource.setrlimit(limit, (_within(value, most), most))


def _within(value: int, most: int) -> int:
    return value if most == resource.RLIM_INFINITY else min(value, most)


def _read_statm() -> str:
    with open("/proc/self/statm", encoding="ascii") as file:
        return file.read()


def _send_files(  # noqa: PLR0913 - see _Child
    files: Sequence[File],
    first: int,
    reading: "Reading",
    read_one: ReadOne,
    to: FillingSide,
    budget: ReadingBudget,
    *,
    counts: bool,
) -> None:
    def after_part() -> None:
        sender.send(own)
        if budget.room < 0:
            raise UnreadableInput("says more than there is room for; the rest of it is left out. Name it alone")

    reading.tables.take_fresh()
    own = reading.like_this(Unsent(), after_part)
    sender, cpu = _Sender(to, budget), _Cpu()
    progress = _ProgressSender(to) if counts else None
    for place in range(first, len(files)):
        if budget.allows(place):
            cpu.allow(budget.most_s(place))
            read_one(files[place], own, count=progress)
        else:
            own.problems.append(Problem(files[place][1], NOT_READ))
        budget.use(place, cpu.used_s())
        sender.send(own, done=True)
        if progress:
            progress.end_file()


NOT_READ = "not read: other files used up the time or the room that all have together. Name it alone, or use --in-process if you trust them"


class _ProgressSender:
    """Sends how much was read, from time to time."""

    def __init__(self, to: FillingSide) -> None:
        self._to = to
        self._unsent = 0
        self._sent_at = time.monotonic()

    def __call__(self, size: int) -> None:
        self._unsent += size
        if self._unsent >= _PROGRESS_STEP:
            self._to.write(message(MessageKind.PROGRESS, I64.pack(self._unsent)))
            self._unsent = 0
            self._hand_over()

    def end_file(self) -> None:
        self._unsent = 0
        if time.monotonic() - self._sent_at > _PROGRESS_S:
            self._hand_over()

    def _hand_over(self) -> None:
        self._to.hand_over()
        self._sent_at = time.monotonic()


class _Cpu:
    """CPU time of this process and of the programs that it starts."""

    def __init__(self) -> None:
        self._own_s = time.process_time()
        self._programs_s = 0.0
        self._limit = 0
        self._ends_s = 0.0

    def allow(self, seconds: float) -> None:
        """The timer ends this process; the limit, in whole seconds, also applies to programs that it starts."""
        ends_s = self._own_s + seconds
        if abs(ends_s - self._ends_s) < _NEARLY_S:
            return  # most files take so little that the timer of one before them still does
        signal.setitimer(signal.ITIMER_PROF, seconds)
        self._ends_s = ends_s
        limit = int(ends_s) + 2
        if limit != self._limit:
            _, most = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (_within(limit, most), most))
            self._limit = limit

    def used_s(self) -> float:
        """Since the last call."""
        own_s = time.process_time()
        used_s, self._own_s = own_s - self._own_s, own_s
        if used_s < _STARTS_PROGRAM_S:
            return used_s
        times = os.times()
        programs_s = times.children_user + times.children_system
        used_s, self._programs_s = used_s + programs_s - self._programs_s, programs_s
        return used_s


class _Sender:
    """Sends what was read since it last did. The child keeps only the tables, to know what it has sent."""

    def __init__(self, to: FillingSide, budget: ReadingBudget) -> None:
        self._to = to
        self._budget = budget
        self._told_spare_s = budget.spare_s

    def send(self, own: "Reading", *, done: bool = False) -> None:
        """`done`: the end of the file."""
        waiting, size = list[bytes](), 0
        for one in messages(own):
            waiting.append(one)
            size += len(one)
            if size > _WRITE_AT:
                self._write(waiting, size)
                waiting, size = [], 0
        if done and self._told_spare_s != self._budget.spare_s:
            self._told_spare_s = self._budget.spare_s
            waiting.append(message(MessageKind.SPARE, _SPARE.pack(self._told_spare_s)))
        if done:
            waiting.append(DONE)
        self._write(waiting, size)

    def _write(self, messages: Sequence[bytes], size: int) -> None:
        self._budget.room -= size
        self._to.write(b"".join(messages))
