"""Claims about what can be read: a stack of a rank has a frame at a line, a line of a log has these words."""

import re
from collections.abc import Iterator
from typing import Final, Literal

from forkpoint.agent.case import Case, Check, Claim, Status
from forkpoint.agent.claims.guards import find_module
from forkpoint.agent.naming import fact, is_plain, named, number
from forkpoint.agent.tools.logs import find_file, line_at, read_lines
from forkpoint.agent.tools.stacks import tell_frame
from forkpoint.errors import UnreadableInput
from forkpoint.model.frames import bare_name
from forkpoint.model.op import Frame, Stack
from forkpoint.model.trace import Track

# ---------------------------------------------------------------------------------------------------------------------
# A stack of a rank has a frame at a line of a file.
#
# | the rank's stacks (live, of its recorded ops, in its log) | is |
# |---|---|
# | have a frame at that line of that file, in that function if one is named | supported |
# | are there, but none has it | contradicted |
# | are not there | unverifiable |
#
# Files are the same if one's path is the end of the other's, or if both are the same file of the source.

_MOST = 3
_MOST_LINES = 8


class FrameAt(Claim):
    """Where a rank was, or called from, as one of its stacks shows."""

    kind: Literal["frame"]
    rank: int
    file: str
    line: int
    function: str | None
    """Null: any."""

    def sentence(self) -> str:
        inside = f" in {named(self.function)}" if self.function is not None else ""
        return f"a stack of rank {number(self.rank)} has {named(self.file)} line {number(self.line)}{inside}"

    def check(self, case: Case) -> Check:
        if not self.file.strip("/\\ ") or not is_plain(self.rank) or not is_plain(self.line):
            return Check.unverifiable("name a rank, a file and a line")
        stacks = {stack: told for told, stack in _stacks(self.rank, case) if stack}
        if not stacks:
            return Check.unverifiable(f"no stack of rank {self.rank} was read")
        files = self._files({frame.filename for stack in stacks for frame in stack}, case)
        in_file = [(f, told) for stack, told in stacks.items() for f in stack if f.filename in files]
        at_line = [(f, told) for f, told in in_file if f.line == self.line]
        fitting = [(f, told) for f, told in at_line if self._is_in(f)]
        shown = dict.fromkeys(fact(case, told, tell_frame(case, frame)) for frame, told in fitting or at_line)
        facts = tuple(shown)[:_MOST]
        if fitting:
            return Check(Status.SUPPORTED, f"rank {self.rank} has this frame", facts)
        if at_line:
            return Check(
                Status.CONTRADICTED,
                f"the frame at this line is in {named(case.clean(bare_name(at_line[0][0])))}",
                facts,
            )
        lines = sorted({f.line for f, _ in in_file})[:_MOST_LINES]
        instead = f"line; of this file they have {', '.join(map(str, lines))}" if lines else "file"
        return Check(Status.CONTRADICTED, f"none of rank {self.rank}'s {len(stacks)} stacks has this {instead}")

    def _files(self, names: set[str], case: Case) -> set[str]:
        """Those that are meant: as a stack names the file, as it was shown, or as it lies in the source."""
        module = find_module(self.file, case)
        program = case.analysis.program if case.analysis is not None else None
        return {
            name
            for name in names
            if ends_alike(name, self.file)
            or ends_alike(case.clean(name), self.file)
            or (program is not None and program.module_at(name) is module)
        }

    def _is_in(self, frame: Frame) -> bool:
        return self.function is None or self.function.rpartition(".")[2].removesuffix("()") == bare_name(frame)


def ends_alike(one: str, two: str) -> bool:
    """py-spy, a traceback and a reader shorten paths each in their own way."""
    parts = [[p for p in text.replace("\\", "/").split("/") if p and p != "."] for text in (one, two)]
    shorter = min(len(p) for p in parts)
    return shorter > 0 and parts[0][-shorter:] == parts[1][-shorter:]


def _stacks(rank: int, case: Case) -> Iterator[tuple[str, Stack]]:
    """With where each was read."""
    capture = case.incident.capture
    for live in capture.stacks:
        if live.rank == rank:
            yield f"{live.file} line {live.line}", live.stack
    for event in case.incident.said.get(rank, ()):
        yield f"{event.file} line {event.line}", event.stack
    trace = case.incident.timeline.traces.get(rank)
    if trace is not None:
        tracks = [*(g.collectives for g in trace.groups), *(c.messages for c in trace.channels)]
        for token in sorted({t for track in tracks if track is not None for t in _tokens(track, case)}):
            yield f"{trace.file}, a recorded call", capture.tables.stacks.get(token, ())
        for op in (op for t in tracks if t is not None for op in (t.last_done, t.first_active, t.last) if op):
            yield f"{trace.file} entry {op.record_id}", op.stack or ()


def _tokens(track: Track, case: Case) -> set[int]:
    blocks = case.incident.capture.tables.blocks
    return {token for key in track.blocks for token in set(blocks[key].stack.tolist())}


# ---------------------------------------------------------------------------------------------------------------------
# A line of a log has these words in it.
#
# | the quote | is |
# |---|---|
# | stands in that line, as it was shown (redacted, escaped), blanks counted as one | supported |
# | does not stand in that line | contradicted, with the line in which it does |
# | is too short to prove anything; no such file, or it cannot be read again; no such line | unverifiable |

_SHORTEST: Final = 8
_CUT: Final = "…"
"""How tools end a line that they cut."""
_FEWEST: Final = 2
_WORD: Final = re.compile(r"[A-Za-z0-9_]{2,}")
_LONGEST: Final = 4000
_SHOWN: Final = 160
_SEARCHED: Final = 200_000
"""Lines that are looked through for where a quote does stand."""


class LogSays(Claim):
    """What a log says, word for word."""

    kind: Literal["log-says"]
    file: str
    line: int
    quote: str
    """A part of that line, as it was shown: several words."""

    def sentence(self) -> str:
        return f"{named(self.file)} line {number(self.line)} says {named(self.quote, _SHOWN)}"

    def check(self, case: Case) -> Check:
        quote = _even(self.quote).removesuffix(_CUT)
        if len(quote) < _SHORTEST or len(_WORD.findall(quote)) < _FEWEST:
            return Check.unverifiable("so short a quote proves nothing: quote several words")
        if len(quote) > _LONGEST or not is_plain(self.line):
            return Check.unverifiable("quote a part of one line")
        file = find_file(case, self.file)
        if file is None:
            return Check.unverifiable(f"no log that was read is called {named(self.file)}")
        line = line_at(case, file, self.line)
        if line is None:
            return Check.unverifiable(f"{case.clean(file)} has no line {self.line} that can be read again")
        where = f"{file} line {self.line}"
        if quote in _even(line):
            return Check(Status.SUPPORTED, "the line has these words", (fact(case, where, line),))
        found = _stands_in(quote, file, case)
        elsewhere = f"; line {found} has them" if found is not None else ""
        return Check(Status.CONTRADICTED, f"the line has other words{elsewhere}", (fact(case, where, line),))


def _even(text: str) -> str:
    return " ".join(text.split())


def _stands_in(quote: str, file: str, case: Case) -> int | None:
    """The first line that has it, as lines are shown."""
    # The longest word is looked for in the raw text first: cleaning every line of a large log takes long.
    word = max(_WORD.findall(quote), key=len)
    try:
        for line in read_lines(case, file, containing=re.compile(re.escape(word).encode())):
            if line.number > _SEARCHED:
                return None
            if quote in _even(case.clean(line.text)):
                return line.number
    except UnreadableInput:
        return None
    return None
