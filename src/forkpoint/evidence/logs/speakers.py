"""Which ranks printed anything in a log, and when it began and ended.

Parsing every line would be slow. In a long log a sample of the lines is parsed, and then the whole log is searched only for
ranks that the sample missed: so a rank that counts as silent was searched for everywhere.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO

from msgspec.structs import replace

from forkpoint.evidence.logs.labels import LEVEL, STAMP, Label, Style, ranks_of, read_label, stated_sizes, take_turns
from forkpoint.evidence.logs.lines import (
    CHUNK,
    ParsedLine,
    decode_line,
    parse_line,
    read_chunks,
    split_lines,
)
from forkpoint.evidence.text import clean, find_time
from forkpoint.model.log import Ending, LogKind

_RANK = re.compile(rb"\[rank(\d{1,7})\]:")
_TASK = re.compile(rb"\n(?: {0,6}(\d{1,7}): |\[\d{1,7},(?:mpirank:)?(\d{1,7}))")
_CALLS_ITSELF = re.compile(r"\b[Rr]ank[ :=#]{0,2}(\d{1,7})\b")
_OWN_WORD = re.compile(
    rf"{STAMP}{LEVEL}(?:[\w.:<>]{{1,60}}(?::|\|| - ) ?)?[\[(<]?(?:[Rr]ank|RANK)[ _:=#-]{{0,2}}(\d{{1,7}})"
    r"(?:[\])>:|]| [|-]| (?:DEBUG|INFO|NOTICE|WARN|ERROR)| (?=[\w|]{1,30}=))"
)
"""How programs start their own lines: with a time, a level, a logger, `[rank 2]`, `rank 2:` or `rank=2 step=4`."""
_ABOUT = r"(?i:for|from|of|by|to|with|on|at|and|lost|missing|peer)\b"
_BRACKETED = re.compile(
    rf"{STAMP.removesuffix('?')}{LEVEL}(?:(?!{_ABOUT})[\w.-]{{1,40}} {{1,4}}){{0,2}}"
    r"[\[(<](?:global )?(?:[Rr]ank|RANK)[ _:=#-]{0,2}(\d{1,7})[\])>]"
)
"""In brackets it may also follow names after a time: `2026-11-18 02:29:08,168 callbacks [rank 0] ...`. Words about another rank
do not count: `waiting for [rank 0]`.
"""
_COLUMN = re.compile(
    rf"{STAMP}{LEVEL}(?:(?!{_ABOUT})[\w.-]{{1,40}}[ |:]{{1,3}}){{0,2}}?"
    r"(?:(?<![\d.])[\[(<]?(?P<of>\d{1,5})/(?P<size>\d{1,5})(?:[\])>]| (?=[A-Za-z]))|[\[(<](?P<bracketed>\d{1,5})[\])>][ :]|(?P<barred>\d{1,5}) ?\|"
    r"|\b(?:[Rr](?:ank[ _:=#-]?)?|[Ww])(?P<named>\d{1,5})(?=[\s:|])"
    r"|[\[(<](?:[Ww]orker|[Pp]roc(?:ess)?|[Mm]ember)[ _:=#-]{0,2}(?P<worker>\d{1,5})[\])>])"
)
"""Where a program may put its rank in each of its lines: `[2/8]`, `2/8 step 4`, `[2] epoch 0`, `| 2 |`, `r2`. It is one only if most lines have it in
one form, and its numbers are those of ranks.
"""
_INTRODUCTION = re.compile(
    rf"(?:\b(?:is|am|as)(?: the)? |^{STAMP}{LEVEL}(?:[\w.]{{1,40}}(?:: | - ))?)(?i:(?:global[ _-]?)?rank)[ :=#_]{{0,2}}"
    r"(\d{1,7})(?:/| of )(\d{1,7})\b(?! (?:is|has|was|did|died|left|joined|failed|exited|timed|never|not|crashed|reports?)\b)"
)
"""`this is rank 2 of 8`, `running as rank 2/8`; at the beginning of a message `rank 2/8: rendezvous`, `rank 2 of 8 starts`"""
_A_COLUMN = 3
"""Minimum number of lines: with fewer, nothing shows that each contains such a number."""
_HEAD = 512
_ALL_UP_TO = 1 << 24
_EVERY = 64
_LOOKED_AT = 200
_TRIES = 20
_MANY = 64
_WORKERS_AT_MOST = 1024
_TIME_LINES = 200
_LAST = 40
"""Number of lines kept at the end of a log."""
_SHOWN = 200
_BEGINNING = 1 << 15
_ENDS = 1 << 13
"""Bytes at each end of one rank's log whose lines are compared with those of other ranks."""
_OF_TORCH = re.compile(r"\[[IWEF]\d{3,4} \d\d:|^[IWE]\d{4} \d\d:| NCCL (?:INFO|WARN) ")
"""Lines from torch's and NCCL's own threads: they do not show that the program is running."""
_OF_A_STACK = re.compile(
    r"(?:\[rank\d{1,7}\]:)? *(?:frame #|#\d|File \"|Exception raised|Traceback|\^|Thread 0x|Current thread)"
)
_ENDED_WELL = re.compile(
    r"\b(?:training|fine-?tuning|pre-?training|run|job|fit|program|experiment|everything|all)\b[^\d]{0,30}"
    r"\b(?:finished|completed?|done|over|ended)(?![a-z])"
    r"|\b(?:finished|completed|done with)\b (?:the )?(?:training|fine-?tuning|fitting|run|job|program|everything|all)\b"
    r"|\bstopped (?:early )?(?:at|after) (?:epoch|step|iteration) \d{1,9}\b"
    r"|`Trainer\.fit` stopped: `max_(?:epochs|steps)=\d{1,12}` reached"
    r"|(?:^|[:|\]] ?|\b(?:INFO|NOTICE) |\brank ?\d{1,7},? (?:is |has )?)(?:done|finished|bye|exiting|all done)[.!]?$",
    re.IGNORECASE,
)
"""The end of the program, not of one of its steps. Another rank's output may follow without a line break."""
_NOTICED = 1 << 16
"""Bytes at the end of a log that are searched for notices from the program: what led to a hang is near the end."""
_LEAVES_OUT = re.compile(
    rb"(?i)non-?finite|\bnan\b|\boverflow|\bskipp(?:ed|ing)\b|\bdropp(?:ed|ing)\b|\bdiscard(?:ed|ing)\b|early[ -]stop|stopping early"
    rb"|no more (?:data|batches|samples)|\bexhausted\b|empty batch|bad batch|\bcorrupt(?:ed)?\b|\bplateau"
    rb"|\bno improvement\b|\bleaving the (?:\w{1,12} )?loop\b|\bg(?:iv(?:e|es|ing)|ave) up\b|\brolling back\b"
)
_PROMPT = re.compile(rb"\(Pdb(?:\+\+)?\)(?: |$)|\bipdb> ")
_NONE_OF_IT = re.compile(
    rb"(?i)(?:skipped|dropped|nan|overflow|non-finite)[ \w]{0,30}[:=] {0,4}0\b"
    rb"|\b(?:skipped|dropped|discarded|overflow(?:s|ed)?)[\"']{0,2} {0,2}[:=|] {0,2}[\[(]?-?\d"
    rb"|\"\w{0,20}(?:skipped|dropped|discarded|overflow|non_?finite|nan)\w{0,20}\"(?: {0,2}:|\s*$)"
)
"""`number of skipped iterations: 0`, and columns of a program that counts them: `"dropped": [4, 0]`."""


class LogSpeakers:
    def __init__(self, *, once: bool, rank: int | None = None) -> None:
        """`once`: the log cannot be read a second time, so all of it is parsed now. `rank`: the rank of the file."""
        self._own = set() if rank is None else {rank}
        self.ranks: set[int] = set()
        self.tasks: set[int] = set()
        self.contradicted = False
        """A line has a launcher's number and a different rank, so such numbers are not ranks."""
        self.roles = False
        """A line has two different `[rankN]:`: the outer one numbers local workers."""
        self._local_ranks: set[int] = set()
        self._offsets: dict[int, set[int]] = {}
        """By local worker: the rank that it called itself, minus its number on the node."""
        self.first_time: str | None = None
        self.last_time: str | None = None
        self._labelled = False
        self._words: set[int] = set()
        """Ranks that the program's own prefixes name."""
        self._introduced: set[int] = set()
        self._looked = 0
        """Lines at the beginning that have a time, or all if none has."""
        self._numbers: dict[str, list[int]] = {}
        """By form: the numbers at the start of lines, in order."""
        self._sizes: set[int] = set()
        self._labels: list[Label] = []
        """What lines start with, in order."""
        self.sizes: set[int] = set()
        """Numbers of ranks that the program prints at the beginning."""
        self._of_program = 0
        """Lines at the beginning that are not torch's, until the first traceback."""
        self._once = once
        self._bytes = 0
        self._chunks = 0
        self._skipped = False
        self._first = b""
        self._last = b""

    def feed(self, chunk: bytes) -> None:
        """Takes the next lines, in order."""
        if not self._chunks:
            self._look_at_beginning(chunk)
            self._first = chunk if len(chunk) <= _BEGINNING else chunk[:_BEGINNING].rpartition(b"\n")[0]
        if self.wants_next():
            self._listen(chunk)
        else:
            self._skipped = True
        self._chunks += 1
        self._bytes += len(chunk)
        self._last = chunk

    def skip(self, size: int) -> None:
        """Counts the bytes of lines that are not parsed."""
        self._chunks += 1
        self._bytes += size
        self._skipped = True

    def wants_next(self) -> bool:
        return self._once or self._bytes < _ALL_UP_TO or self._chunks % _EVERY == 0

    @property
    def tasks_are_ranks(self) -> bool:
        return self._labelled and not self.contradicted

    @property
    def local_ranks(self) -> frozenset[int]:
        return frozenset(self._local_ranks)

    @property
    def of_many(self) -> bool:
        """Several local workers printed: it is the log of a node, even if its name has a rank."""
        return len(self._local_ranks) > 1

    @property
    def node_offset(self) -> int | None:
        """What to add to local numbers to get ranks, if at least two workers say so and none contradicts."""
        found = set[int].intersection(*self._offsets.values()) if len(self._offsets) > 1 else set[int]()
        return next(iter(found)) if len(found) == 1 and min(found) >= 0 else None

    @property
    def introduces(self) -> int | None:
        """The only rank as which the program introduces itself, with the number of all ranks."""
        return next(iter(self._introduced)) if len(self._introduced) == 1 else None

    @property
    def only_program_rank(self) -> int | None:
        """The rank that the program names in its own prefixes or introduces itself as, if there is only one."""
        named = self._words or self._introduced or (set(self._numbers[self._column]) if self._column else set())
        return next(iter(named)) if len(named) == 1 and not self._own else None

    @property
    def calls_itself(self) -> int | None:
        """The one number that every line of the program starts with, however few lines there are: a rank only if other files
        confirm it.
        """
        named = [
            numbers for numbers in self._numbers.values() if len(numbers) == self._looked and len(set(numbers)) == 1
        ]
        return named[0][0] if len(named) == 1 else None

    def program_rank(self, message: str) -> int | None:
        """Who speaks, by a prefix of the program's own."""
        if named := _OWN_WORD.match(message) or _BRACKETED.match(message):
            return int(named[1])
        found = _COLUMN.match(message) if self._column else None
        if found and self._column and found[self._column]:
            return int(found[self._column])
        label = None if self._column else read_label(message)
        return self._called.get(label.name) if label else None

    @cached_property
    def _column(self) -> str | None:
        """The form in which the program writes its rank into its lines."""
        form = max(self._numbers, key=lambda one: len(self._numbers[one]), default=None)
        return form if form and self._are_ranks(form, self._numbers[form]) else None

    @cached_property
    def _called(self) -> dict[tuple[Style, str, int | None], int]:
        return ranks_of(self._labels, self._of_program, frozenset(self.ranks))

    def _are_ranks(self, form: str, numbers: list[int]) -> bool:
        """The numbers are exactly those of the ranks that torch's own lines name, and ranks take turns: steps would only grow. If
        most lines have one, they count from 0, and torch may name only some of the ranks. In `2/8` the 8 is the number of
        ranks, and the 2 does not change in the log of one rank.
        """
        often = len(numbers) >= _A_COLUMN and 5 * len(numbers) >= 4 * self._looked
        if form == "of" and len(self._sizes) == 1 and often:
            return max(numbers) < min(self._sizes) and (len(set(numbers)) == 1 or take_turns(numbers))
        if form == "named" and often and len(set(numbers)) == 1:
            return True
        heard = set(range(max(numbers if often else self.ranks, default=-1) + 1))
        return len(heard) > 1 and self.ranks <= heard == set(numbers) and take_turns(numbers)

    def finish(self, stream: BinaryIO, world: int) -> None:
        """Parses the end of the log and searches it for ranks not found yet. `world`: the job's size according to the log, or 0."""
        for line in reversed(split_lines(self._last or b"\n")[-_TIME_LINES:]):
            self.last_time = find_time(line[:_HEAD].decode("utf-8", "replace"))
            if self.last_time:
                break
        if self._skipped:
            self._listen(self._last)
            if not self._own or not self.ranks <= self._own:
                self._look_for_missing(stream, world)

    def ending(self, lines: int) -> Ending:
        """How the log ends. `lines`: the number of lines in the whole log."""
        raw = split_lines(self._last or b"\n")[-_TIME_LINES:]
        texts = [clean(decode_line(line, _HEAD), _SHOWN) for line in raw]
        own = [text for text in texts if not (_OF_TORCH.search(text) or _OF_A_STACK.match(text))]
        done = [at for at, text in enumerate(texts) if _ENDED_WELL.search(text) and not _OF_TORCH.search(text)]
        return Ending(
            lines=tuple([text for text in own if text][-_LAST:]),
            done=lines - len(texts) + done[-1] + 1 if done else None,
            done_by=frozenset(rank for at in done if (rank := self._calls_itself(texts[at])) is not None),
        )

    def _calls_itself(self, text: str) -> int | None:
        named = _CALLS_ITSELF.search(text)
        return int(named[1]) if named else self.program_rank(text)

    def ends(self, lines: int) -> Iterator[tuple[int, str]]:
        """(number, text) of the lines at the beginning and at the end of the log. `lines`: as above."""
        size = _ENDS if self._own and not self.of_many else _NOTICED
        first, last = split_lines(self._first[:size].rpartition(b"\n")[0]), split_lines(self._last[-size:])
        if len(self._last) > size:
            del last[0]  # a part of a line
        numbered = dict(enumerate(first, 1)) | dict(enumerate(last, lines - len(last) + 1))
        yield from ((number, decode_line(raw, _HEAD)) for number, raw in sorted(numbered.items()))

    def notices(self) -> Iterator[tuple[LogKind, int, ParsedLine]]:
        """(kind, number of lines after it, line) of lines near the end in which the program says that it skipped something, or a
        debugger waits for input.
        """
        end = self._last[-_NOTICED:]
        if not (_LEAVES_OUT.search(end) or _PROMPT.search(end)):
            return
        lines = split_lines(end)
        for place, raw in enumerate(lines):
            asks = _PROMPT.search(raw)
            if asks or (_LEAVES_OUT.search(raw) and not _NONE_OF_IT.search(raw)):
                line = parse_line(decode_line(raw, _HEAD))
                if line.speaker.rank is None and not self._own:
                    line.speaker = replace(line.speaker, rank=self.program_rank(line.message))
                yield LogKind.DEBUGGER if asks else LogKind.NOTICE, len(lines) - 1 - place, line

    def note(self, line_rank: int | None, task: int | None, local: int | None, role: int | None) -> None:
        """Records the prefixes of one line, and whether they contradict each other."""
        if task is not None and (local is not None or (line_rank is not None and line_rank != task)):
            self.contradicted = True
        if role is not None and role != line_rank:
            self.roles = True
        if local is not None and len(self._local_ranks) < _WORKERS_AT_MOST:
            self._local_ranks.add(local)
            if line_rank is not None and role is None:
                self._offsets.setdefault(local, set()).add(line_rank - local)

    def _look_at_beginning(self, chunk: bytes) -> None:
        lines = split_lines(chunk)[:_LOOKED_AT]
        labelled = timed = 0
        failed = False
        for raw in lines:
            line = parse_line(raw[:_HEAD].decode("utf-8", "replace"))
            speaker = line.speaker
            self.note(speaker.rank, speaker.task, speaker.local_rank, line.role)
            labelled += speaker.task is not None
            named = _CALLS_ITSELF.search(line.message) if speaker.local_rank is not None else None
            if named is not None and speaker.local_rank is not None:
                self._offsets.setdefault(speaker.local_rank, set()).add(int(named[1]) - speaker.local_rank)
            self.first_time = self.first_time or line.time
            of_program = not (line.from_c10 or line.message[:1].isspace() or _OF_TORCH.match(line.message))
            timed += line.time is not None and of_program
            if of_program:
                failed = failed or _OF_A_STACK.match(line.message) is not None
                self._of_program += not failed
                self._hear_program(line.message)
        self._looked = timed or len(lines)
        self._labelled = labelled * 2 > len(lines)

    def _hear_program(self, message: str) -> None:
        if named := _OWN_WORD.match(message) or _BRACKETED.match(message):
            self._words.add(int(named[1]))
        elif (found := _COLUMN.match(message)) and (form := "of" if found["of"] else found.lastgroup):
            self._numbers.setdefault(form, []).append(int(found[form]))
            self._sizes |= {int(found["size"])} if found["size"] else set()
        self.sizes.update(stated_sizes(message))
        if label := read_label(message):
            self._labels.append(label)
        if (introduced := _INTRODUCTION.search(message)) and int(introduced[1]) < int(introduced[2]):
            self._introduced.add(int(introduced[1]))
            self.sizes.add(int(introduced[2]))

    def _listen(self, chunk: bytes) -> None:
        new = {int(text) for text in set(_RANK.findall(chunk))} - self.ranks
        if new:
            self._hear_new(chunk, new)
        if self._labelled:
            self.tasks |= {int(plain or tagged) for plain, tagged in set(_TASK.findall(b"\n" + chunk))}

    def _hear_new(self, chunk: bytes, new: set[int]) -> None:
        tries: Counter[int] = Counter()
        for found in _RANK.finditer(chunk):
            rank = int(found[1])
            if rank in new and tries[rank] < _TRIES:
                tries[rank] += 1
                if _is_prefix(chunk, found.start(), rank):
                    self.ranks.add(rank)
                    new.discard(rank)

    def _look_for_missing(self, stream: BinaryIO, world: int) -> None:
        world = max(world, max(self.ranks, default=-1) + 1)
        count = world - len(self.ranks)
        if not count:
            return
        # Only if few are missing is it worth listing them; otherwise any rank is searched for.
        few = sorted(set(range(world)) - self.ranks) if count <= _MANY else []
        one_of = b"|".join(b"%d" % number for number in few)
        wanted = re.compile(rb"\[rank(?:" + one_of + rb")\]:" if few else rb"\[rank\d")
        stream.seek(0)
        for chunk in read_chunks(stream, CHUNK):
            if wanted.search(chunk):
                self._listen(chunk)
                if len(self.ranks) >= world:
                    return


def _is_prefix(chunk: bytes, place: int, rank: int) -> bool:
    """Whether the number at this place is a prefix, not part of a message."""
    start = chunk.rfind(b"\n", 0, place) + 1
    text = chunk[max(start, place - _HEAD) : place + _HEAD].partition(b"\n")[0]
    return parse_line(decode_line(text, 2 * _HEAD)).speaker.rank == rank
