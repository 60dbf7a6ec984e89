"""Reads one log, of one rank or of many: finds lines that matter, parses them, joins them to blocks, makes events."""

import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, cast

from msgspec.structs import replace

from forkpoint.evidence.logs.blocks import (
    AgentTable,
    LineBlock,
    MessageBlock,
    PodBlock,
    StackBlock,
    TracebackBlock,
    is_traceback_frame,
    read_error_file,
)
from forkpoint.evidence.logs.events import Keeper, KeptEvent, LogReading, base_event, pattern_event, settle
from forkpoint.evidence.logs.lines import (
    CHUNK,
    LONGEST,
    ParsedLine,
    decode_line,
    parse_line,
    read_chunks,
    split_glued,
    split_lines,
)
from forkpoint.evidence.logs.patterns import TRACEBACK, match_line, scan_literals
from forkpoint.evidence.logs.printed import keep_printed
from forkpoint.evidence.logs.search import LineFinder, Ripgrep, RipgrepFailed, is_hit, reopened, ripgrep
from forkpoint.evidence.logs.speakers import LogSpeakers
from forkpoint.evidence.stacks.read import MARKS, StackLines
from forkpoint.evidence.text import clean
from forkpoint.model.capture import Problem
from forkpoint.model.log import LogEvent, LogKind, PrintedLine, Speaker

_END = 1 << 16
_LONG = 1 << 14
_BEFORE, _AFTER = 1 << 10, 1 << 13
_ERROR_FILE = b'"py_callstack"'
_IDLE_AT_MOST = 5_000
"""Lines of other speakers that may come between two lines of a block."""
_EXPIRE_EVERY = 256
_CUT_HEAD = 4
"""Lines before the first whole frame in a log that begins inside a traceback: part of a line, code, carets."""
_REMEMBERED_AT_MOST = 10_000
"""Limit of remembered speakers: a log may name a new one in every line."""
_TELL_THE_WORLD = frozenset({LogKind.NCCL_INIT, LogKind.SETTINGS})
_BLOCKS: dict[str, Callable[[LogEvent], LineBlock]] = {
    "message": MessageBlock,
    "collective-stack": StackBlock,
    "thread-stack": StackBlock,
    "pod": PodBlock,
}


def read_log(source: bytes | BinaryIO, file: str, rank: int | None) -> LogReading:
    """Everything a log says. `rank`: the file's rank, if known; a line's own `[rankN]:` takes precedence."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    program = ripgrep()
    descriptor = reopened(stream) if program else None
    if program is None or descriptor is None:
        return _read_alone(stream, file, rank)
    try:
        return _read_with_ripgrep(stream, Ripgrep(program, descriptor), file, rank)
    except RipgrepFailed:
        stream.seek(0)
        return _read_alone(stream, file, rank)
    finally:
        os.close(descriptor)


def _read_alone(stream: BinaryIO, file: str, rank: int | None) -> LogReading:
    heard = LogSpeakers(once=not stream.seekable(), rank=rank)
    reader = LogReader(file, rank, heard)
    finder = LineFinder()
    read, newlines, last = 0, 0, b"\n"
    cut = None
    try:
        for chunk in read_chunks(stream, CHUNK):
            count, hits = finder.hits(chunk)
            reader.feed(chunk, count, hits)
            heard.feed(chunk)
            read += len(chunk)
            newlines += count
            last = chunk
        heard.finish(stream, reader.world)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        cut = f"cannot be read beyond byte {read} ({error}); the part before that was used"
    return reader.finish(newlines + (not last.endswith(b"\n")), read, cut)


def _read_with_ripgrep(stream: BinaryIO, search: Ripgrep, file: str, rank: int | None) -> LogReading:
    """Counts lines and collects speakers while ripgrep searches."""
    heard = LogSpeakers(once=False, rank=rank)
    reader = LogReader(file, rank, heard)
    try:
        read, newlines = _count(stream, heard)
        stream.seek(max(0, read - _END))
        end = stream.read(_END)
        heard.feed(end.partition(b"\n")[2] if read > _END else end)
        reader.feed_from(stream, search.lines())
        heard.finish(stream, reader.world)
    finally:
        search.close()
    return reader.finish(newlines + (not end.endswith(b"\n")), read, None)


def _count(stream: BinaryIO, heard: LogSpeakers) -> tuple[int, int]:
    """Counts bytes and newlines. Some pieces, trimmed to whole lines, go to `heard`."""
    buffer = bytearray(CHUNK)
    finder = LineFinder()
    read = newlines = 0
    while size := cast("io.BufferedReader", stream).readinto(buffer):
        newlines += finder.count_newlines(memoryview(buffer)[:size])
        if heard.wants_next():
            first = 0 if read == 0 else buffer.find(b"\n") + 1
            heard.feed(bytes(buffer[first : buffer.rfind(b"\n", 0, size) + 1]))
        else:
            heard.skip(size)
        read += size
    return read, newlines


class _Open:
    """A block while it is read."""

    def __init__(self, block: LineBlock, line: ParsedLine, number: int) -> None:
        self.block = block
        self.sure = _is_sure(line)
        self.from_c10 = line.from_c10
        self.last = number


def _is_sure(line: ParsedLine) -> bool:
    return line.from_c10 or line.role is not None


_SPAWNED = re.compile(r"-- Process (\d{1,7}) terminated with the following error:$")


class LogReader:
    def __init__(self, file: str, rank: int | None, heard: LogSpeakers) -> None:
        self._file = file
        self._rank = rank
        self._heard = heard
        self._number = 1
        self._keeper = Keeper()
        self._open: dict[Speaker, _Open] = {}
        self._latest: dict[Speaker, Speaker] = {}
        """The last speaker by everything but the rank: C++ messages continue on lines without a rank prefix."""
        self._chains: dict[Speaker, str] = {}
        self._head = _CUT_HEAD
        """Lines left at the beginning in which a traceback without its first line may start."""
        self._stacks = StackLines()
        self._processes: dict[Speaker, set[int]] = {}
        """Ranks that a process, identified by its prefix, called itself."""
        self._spawned: int | None = None
        """The process whose traceback `mp.spawn` repeats from here on: it numbers them like ranks."""
        self._expired = 0
        self._hidden = 0
        self.world = 0
        """The largest size of a group or communicator in the log."""

    def feed(self, chunk: bytes, newlines: int, hits: Sequence[int]) -> None:
        """Takes the next lines; `hits` are the indexes of those that contain a searched string."""
        if hits or self._goes_on():
            lines = split_lines(chunk)
            place = 0
            for hit in (*hits, len(lines)):
                while place < hit and self._goes_on():
                    self._go_on(lines[place], self._number + place)
                    place += 1
                if hit < len(lines):
                    self._look(lines[hit], self._number + hit)
                    place = hit + 1
        self._number += newlines

    def feed_from(self, stream: BinaryIO, found: Iterable[tuple[int, int]]) -> None:
        """Takes the lines that begin at these offsets, and the lines between them that open blocks need."""
        stream.seek(0)
        for number, offset in found:
            self._go_on_until(stream, number)
            stream.seek(offset)
            line = stream.readline(LONGEST)
            self._look(line.rstrip(b"\n"), number)
            self._number = number + 1
        self._go_on_until(stream, None)

    def _go_on_until(self, stream: BinaryIO, number: int | None) -> None:
        while self._goes_on() and (number is None or self._number < number):
            line = stream.readline(LONGEST)
            if not line:
                return
            self._go_on(line.rstrip(b"\n"), self._number)
            self._number += line.endswith(b"\n")

    def finish(self, lines: int, size: int, cut: str | None) -> LogReading:
        heard = self._heard
        for speaker in list(self._open):
            self._close(speaker)
        for kind, after, line in heard.notices():
            known = is_hit(line.message.encode()) and match_line(line.message) is not None
            if line.from_c10 or line.message[:1].isspace() or known:
                continue  # it matches a pattern, or is a line of code
            base = base_event(line, self._file, max(1, lines - after), self._rank)
            self._keeper.add(KeptEvent(replace(base, kind=kind), _is_sure(line)))
        kept, printed = self._keeper.kept(), self._printed(lines)
        return LogReading(
            events=tuple(settle(each, heard, self._rank) for each in kept),
            speakers=self._speakers(kept) | {line.rank for line in printed if line.rank is not None},
            stacks=tuple(self._stacks.finish(self._file, self._rank_of)),
            first_time=heard.first_time,
            last_time=heard.last_time,
            lines=lines,
            bytes=size,
            introduces=heard.introduces,
            sizes=frozenset(heard.sizes),
            calls_itself=heard.calls_itself,
            ending=heard.ending(lines),
            printed=printed,
            left_out=tuple(self._keeper.left_out()),
            problems=tuple(self._problems(cut)),
        )

    def _printed(self, lines: int) -> tuple[PrintedLine, ...]:
        """In a log of many ranks each line's prefix says who printed it."""
        heard = self._heard
        of_many = self._rank is None or heard.of_many

        def rank_of(line: ParsedLine) -> int | None:
            if not of_many:
                return None
            rank = settle(KeptEvent(base_event(line, self._file, 0, None), _is_sure(line)), heard, None).rank
            return heard.program_rank(line.message) if rank is None else rank

        return keep_printed(heard.ends(lines), rank_of, of_many=of_many)

    def _speakers(self, kept: list[KeptEvent]) -> frozenset[int]:
        heard = self._heard
        own = {each.event.speaker.rank for each in kept if each.sure or not heard.roles}
        in_settings = {each.event.rank for each in kept if each.event.pattern == "group-settings"}
        ranks = own | in_settings | (set() if heard.roles else heard.ranks)
        if heard.tasks_are_ranks:
            ranks |= heard.tasks
        if heard.node_offset is not None:
            ranks |= {local + heard.node_offset for local in heard.local_ranks}
        return frozenset(rank for rank in ranks - {None} or {heard.only_program_rank} if rank is not None)

    def _problems(self, cut: str | None) -> list[Problem]:
        texts = [cut] if cut else []
        texts += [text for text in (self._keeper.problem(), self._stacks.problem()) if text]
        if self._hidden:
            texts.append(
                f"Ray left out {self._hidden} repeated lines and which ranks printed them; "
                "run with RAY_DEDUP_LOGS=0 to keep them"
            )
        if self._heard.roles:
            texts.append(
                "[rankN]: at the start of its lines numbers the workers of one node, so it is not the global rank"
            )
        return [Problem(self._file, clean(text)) for text in texts]

    def _goes_on(self) -> bool:
        """Whether the next line is needed even if it contains no searched string."""
        return bool(self._open) or self._stacks.open or self._head > 0

    def _look(self, raw: bytes, number: int) -> None:
        """Takes a line that was found by the search: it may be an event, or begin stacks."""
        if is_hit(raw):
            self._head -= 1
        else:
            if self._goes_on() or any(mark in raw for mark in MARKS):
                self._go_on(raw, number)
            return
        for text in _messages(raw):
            line = parse_line(text)
            speaker = line.speaker
            self._heard.note(speaker.rank, speaker.task, speaker.local_rank, line.role)
            if line.of_process and speaker.rank is not None and len(self._processes) < _REMEMBERED_AT_MOST:
                self._processes.setdefault(speaker.without_rank, set()).add(speaker.rank)
            self._hidden += line.repeated - 1
            self._stacks.take(speaker, line.message, number, blank=line.blank)
            if not self._offer(line, number):
                self._begin(line, number)
        self._expire(number)

    def _go_on(self, raw: bytes, number: int) -> None:
        """Takes a line that only matters to an open block or stack."""
        line = parse_line(decode_line(raw, _LONG))
        self._stacks.take(line.speaker, line.message, number, blank=line.blank)
        spawned = _SPAWNED.match(line.message)
        self._spawned = int(spawned[1]) if spawned else self._spawned
        taken = self._offer(line, number)
        if not taken and self._head > 0 and is_traceback_frame(line.message):
            base = base_event(line, self._file, number, self._rank)
            self._hold(TracebackBlock(base, headless=True), line, number)
            self._offer(line, number)
        self._head -= 1
        self._expire(number)

    def _expire(self, number: int) -> None:
        if number - self._expired < _EXPIRE_EVERY:
            return
        self._expired = number
        self._stacks.expire(number)
        for speaker, block in list(self._open.items()):
            if number - block.last > _IDLE_AT_MOST:
                self._close(speaker)
        for memory in (self._latest, self._chains):
            if len(memory) > _REMEMBERED_AT_MOST:
                memory.clear()

    def _rank_of(self, speaker: Speaker) -> int | None:
        """The rank of this speaker's stacks, if the log says it."""
        if speaker.rank is not None and not self._heard.roles:
            return speaker.rank
        named = self._processes.get(speaker.without_rank, set())
        if len(named) == 1:
            return next(iter(named))
        if self._rank is not None:
            return None if self._heard.of_many else self._rank
        return speaker.task if self._heard.tasks_are_ranks else None

    def _offer(self, line: ParsedLine, number: int) -> bool:
        """Whether an open block took the line."""
        if not self._open:
            return False
        speaker = line.speaker
        outer = speaker.without_rank
        target = self._target(line, outer)
        self._latest[outer] = target or speaker
        if target is None:
            return False
        held = self._open[target]
        if line.from_c10:
            if not isinstance(held.block, TracebackBlock) or held.block.ended:
                self._close(target)
            return False
        taken = held.block.take(line.message)
        if taken:
            held.last = number
        if held.block.done:
            self._close(target)
        elif isinstance(held.block, TracebackBlock) and held.block.then == "agent-table":
            self._replace_by_table(target, line, number)
        return taken

    def _target(self, line: ParsedLine, outer: Speaker) -> Speaker | None:
        if line.speaker in self._open:
            return line.speaker
        latest = self._latest.get(outer)
        if line.speaker.rank is None and latest in self._open and self._open[latest].from_c10:
            return latest
        return None

    def _begin(self, line: ParsedLine, number: int) -> None:
        """Takes a line that no block took: it opens a block, is an event, or is ignored."""
        base = base_event(line, self._file, number, self._rank)
        message = line.message
        if message.startswith((TRACEBACK, "  + Exception Group Traceback", "Exception Group Traceback")):
            base = base if self._spawned is None else replace(base, rank=self._spawned)
            self._hold(TracebackBlock(base, self._chains.pop(line.speaker, None)), line, number)
            return
        found = match_line(message)
        if found is None:
            return
        pattern, match = found
        event = pattern_event(base, pattern, match, message)
        if pattern.opens == "error-file":
            self._keep(read_error_file(message, event), line)
        elif pattern.opens == "agent-table":
            self._hold(AgentTable(event, root=match["root"] is not None), line, number)
        elif pattern.opens is not None:
            self._hold(_BLOCKS[pattern.opens](event), line, number)
        else:
            self._keep(event, line)

    def _hold(self, block: LineBlock, line: ParsedLine, number: int) -> None:
        self._close(line.speaker)
        self._open[line.speaker] = _Open(block, line, number)
        self._latest[line.speaker.without_rank] = line.speaker

    def _replace_by_table(self, speaker: Speaker, line: ParsedLine, number: int) -> None:
        """After an agent's exception comes its failure table."""
        event = next(self._open.pop(speaker).block.events())
        self._keep(event, line)
        self._hold(AgentTable(replace(event, stack=(), exception=None), root=False), line, number)

    def _keep(self, event: LogEvent, line: ParsedLine) -> None:
        if event.kind in _TELL_THE_WORLD:
            self.world = max(self.world, int(event.detail("nranks") or event.detail("size") or 0))
        self._keeper.add(KeptEvent(event, _is_sure(line)))

    def _close(self, speaker: Speaker) -> None:
        held = self._open.pop(speaker, None)
        if held is None:
            return
        for event in held.block.events():
            self._keeper.add(KeptEvent(event, held.sure))
        if isinstance(held.block, TracebackBlock) and held.block.chains:
            self._chains[speaker] = held.block.chains


def _messages(raw: bytes) -> list[str]:
    """The messages of one physical line; of a very long line, only the text around the first searched string."""
    if len(raw) <= _LONG or _ERROR_FILE in raw:
        return split_glued(raw.decode("utf-8", "replace"))
    pieces = [piece for piece in raw.split(b"\r") if any(literal in piece for literal in scan_literals())]
    texts: list[str] = []
    for piece in pieces[:_EXPIRE_EVERY]:
        place = min(found for literal in scan_literals() if (found := piece.find(literal)) >= 0)
        texts += split_glued(piece[max(0, place - _BEFORE) : place + _AFTER].decode("utf-8", "replace"))
    return texts
