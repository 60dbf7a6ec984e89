"""Claims about stacks and logs: a rank has a frame at a line, a thread waits for a lock that another holds, a line of a log contains a quote."""

import ast
import re
from collections.abc import Iterator
from typing import Final, Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.guards import Line, find_line, find_module
from forkpoint.agent.tools.logs import find_file, line_at, read_lines, text_files
from forkpoint.agent.tools.stacks import tell_frame
from forkpoint.brief.case import Case, Fact, fact, is_plain, named, number
from forkpoint.errors import UnreadableInput
from forkpoint.evidence.stacks.shapes import Shape, find_shape
from forkpoint.model.frames import bare_name
from forkpoint.model.op import Frame, Stack
from forkpoint.model.trace import Track
from forkpoint.source.code import Module
from forkpoint.source.syntax import last_word, own_nodes

# ---------------------------------------------------------------------------------------------------------------------
# A stack of a rank has a frame at a line of a file.
#
# | the rank's stacks (live, of every thread; of its recorded ops; in its log) | is |
# |---|---|
# | have a frame at that line of that file, or at another line of the same statement, in that function if one is named | supported |
# | are all known, and none has it; or the frame at that line is in another function | contradicted |
# | are missing or incomplete: the dump is cut off, or its ring buffer wrapped and no live stack was taken; a file of the rank
#   was set aside; some text names the place but was not parsed as a stack | unverifiable |
#
# Files are the same if one's path is the end of the other's, or if both are the same file of the source.

_MOST = 3
_MOST_LINES = 8
_MOST_FILES = 64
"""Text files of a rank that are searched for the place; with more, the claim is unverifiable."""


class FrameAt(Claim):
    """One of a rank's stacks has a frame at this line."""

    kind: Literal["frame"]
    rank: int
    file: str
    line: int
    function: str | None = None
    """Null: any."""

    def sentence(self) -> str:
        inside = f" in {named(self.function)}" if self.function is not None else ""
        return f"a stack of rank {number(self.rank)} has {named(self.file)} line {number(self.line)}{inside}"

    def check(self, case: Case) -> ClaimCheck:
        if not self.file.strip("/\\ ") or not is_plain(self.rank) or not is_plain(self.line):
            return ClaimCheck.unverifiable("name a rank, a file and a line")
        stacks = {stack: told for told, stack in stacks_of(self.rank, case) if stack}
        if not stacks:
            return ClaimCheck.unverifiable(f"no stack of rank {self.rank} was read")
        files = same_files(self.file, {frame.filename for stack in stacks for frame in stack}, case)
        in_file = [(f, told) for stack, told in stacks.items() for f in stack if f.filename in files]
        at_line = [(f, told) for f, told in in_file if f.line == self.line]
        at_line = at_line or [(f, told) for f, told in in_file if self._is_one_statement(f, case)]
        fitting = [(f, told) for f, told in at_line if self._is_in(f)]
        shown = dict.fromkeys(fact(case, told, tell_frame(case, frame)) for frame, told in fitting or at_line)
        facts = tuple(shown)[:_MOST]
        if fitting:
            return ClaimCheck(ClaimStatus.SUPPORTED, f"rank {self.rank} has this frame", facts)
        if at_line:
            name = bare_name(at_line[0][0])
            status = ClaimStatus.UNVERIFIABLE if name in _UNNAMED else ClaimStatus.CONTRADICTED
            return ClaimCheck(status, f"the frame at this line is in {named(case.clean(name))}", facts)
        return self._none_has_it(sorted({f.line for f, _ in in_file})[:_MOST_LINES], len(stacks), case)

    def _none_has_it(self, lines: list[int], count: int, case: Case) -> ClaimCheck:
        instead = f"line; of this file they have {', '.join(map(str, lines))}" if lines else "file"
        why = f"none of rank {self.rank}'s {count} stacks has this {instead}"
        doubt = _doubt(self.rank, case) or self._named_in_text(case)
        return (
            ClaimCheck(ClaimStatus.UNVERIFIABLE, f"{why}; but {doubt}")
            if doubt
            else ClaimCheck(ClaimStatus.CONTRADICTED, why)
        )

    def _named_in_text(self, case: Case) -> str | None:
        """Threads that run no code of the program, and stacks in an unknown format, exist only as text."""
        name = self.file.replace("\\", "/").rpartition("/")[2].encode("utf-8", "replace")
        place = re.compile(rb"(?<![\w.-])" + re.escape(name) + rb"\W{1,4}(?:line )?" + str(self.line).encode() + rb"\b")
        files = [file for file, ranks in text_files(case).items() if not ranks or self.rank in ranks]
        if len(files) > _MOST_FILES:
            return f"it has {len(files)} text files, too many to search"
        for file in files:
            try:
                found = next(read_lines(case, file, containing=place), None)
            except UnreadableInput as error:
                return case.clean(str(error))
            if found is not None:
                return f"{case.clean(file)} line {found.number} mentions this place"
        return None

    def _is_one_statement(self, frame: Frame, case: Case) -> bool:
        """For a call over several lines, recorders give the first line, the last, or that of an argument."""
        module = find_module(self.file, case)
        function = module.function_at(frame.line) if isinstance(module, Module) and frame.line > 0 else None
        if function is None:
            return False
        heads = (_head(node) for node in own_nodes(function.node) if isinstance(node, ast.stmt))
        return any(self.line in head and frame.line in head for head in heads)

    def _is_in(self, frame: Frame) -> bool:
        return self.function is None or self.function.rpartition(".")[2].removesuffix("()") == bare_name(frame)


_UNNAMED = frozenset({"<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "wrapper", "inner", "wrapped"})
"""Frames with these names may belong to a function with another name."""


def _head(statement: ast.stmt) -> range:
    """Its lines, without those of nested statements."""
    body: list[ast.stmt] = getattr(statement, "body", [])
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(last, statement.lineno) + 1)


def _doubt(rank: int, case: Case) -> str | None:
    """Why some stacks of the rank may be missing; None if all were read."""
    timeline = case.incident.timeline
    trace = timeline.traces.get(rank)
    live = any(live.rank == rank for live in case.incident.capture.stacks)
    if any(one.rank == rank for one in case.verdict.coverage.set_aside):
        return "a file of this rank was set aside"
    if case.incident.capture.nameless_stacks:
        return "the rank of some stacks is unknown"
    if trace is not None and (rank in timeline.blind or trace.cut):
        return "its dump ends early"
    if not live and (trace is None or trace.is_partial or not trace.from_start):
        return "its ring buffer has lost earlier calls, and no stack was taken while it hung"
    return None


def same_files(claimed: str, names: set[str], case: Case) -> set[str]:
    """The names that mean the claimed file: as in the stack, as shown to the model, or as in the source."""
    module = find_module(claimed, case)
    program = case.analysis.program if case.analysis is not None else None
    return {
        name
        for name in names
        if ends_alike(name, claimed)
        or ends_alike(case.clean(name), claimed)
        or (program is not None and program.module_at(name) is module)
    }


def ends_alike(one: str, two: str) -> bool:
    """One path is the end of the other: py-spy, tracebacks and people all shorten paths differently."""
    parts = [[p for p in text.replace("\\", "/").split("/") if p and p != "."] for text in (one, two)]
    shorter = min(len(p) for p in parts)
    return shorter > 0 and parts[0][-shorter:] == parts[1][-shorter:]


def stacks_of(rank: int, case: Case) -> Iterator[tuple[str, Stack]]:
    """Stacks of all threads, each with the place it was read from."""
    capture = case.incident.capture
    for live in capture.stacks:
        if live.rank == rank:
            yield f"{live.file} line {live.line}", live.stack
            yield from ((f"{live.file} thread {name}", stack) for name, stack in live.others)
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
# A line of a log contains a quote.
#
# | the quote | is |
# |---|---|
# | is in that line as it was shown (redacted, escaped, runs of blanks as one) | supported |
# | is in another line of that file | supported, with that line |
# | has a word that is neither in that line nor near it, and is nowhere in the file | contradicted |
# | has only words of that line and those near, in another order or with others between; is too short to prove anything; the file or line does not exist or cannot be read again; or the line was not shown as
#   written: cut or partly masked | unverifiable |

_SHORTEST: Final = 8
_CUT: Final = "…"
"""Marks a line that a tool has cut."""
_FEWEST: Final = 2
_WORD: Final = re.compile(r"[A-Za-z0-9_]{2,}")
_LONGEST: Final = 4000
_SHOWN: Final = 160
_NEAR: Final = 3
"""Lines before and after, over which one message may go."""
_SEARCHED: Final = 200_000
"""Lines searched for a quote that is not on the claimed line."""


class LogSays(Claim):
    """What a log says, word for word."""

    kind: Literal["log-says"]
    file: str
    line: int
    quote: str
    """Several words of that line, as shown."""

    def sentence(self) -> str:
        return f"{named(self.file)} line {number(self.line)} says {named(self.quote, _SHOWN)}"

    def check(self, case: Case) -> ClaimCheck:
        quote = _single_spaced(self.quote).removesuffix(_CUT)
        if len(quote) < _SHORTEST or len(_WORD.findall(quote)) < _FEWEST:
            return ClaimCheck.unverifiable("the quote is too short to prove anything: quote several words")
        if len(quote) > _LONGEST or not is_plain(self.line):
            return ClaimCheck.unverifiable("quote a part of one line")
        file = find_file(case, self.file)
        if file is None:
            return ClaimCheck.unverifiable(f"no log named {named(self.file)} was read")
        line = line_at(case, file, self.line)
        if line is None:
            return ClaimCheck.unverifiable(f"{case.clean(file)} has no line {self.line} that can be read again")
        if quote in _single_spaced(line) or _single_spaced(case.clean(quote)) in _single_spaced(line):
            return ClaimCheck(
                ClaimStatus.SUPPORTED, "the line has these words", (fact(case, f"{file} line {self.line}", line),)
            )
        return self._look_elsewhere(quote, line, file, case)

    def _look_elsewhere(self, quote: str, line: str, file: str, case: Case) -> ClaimCheck:
        """The right words with a wrong line number still count."""
        found = _find_quote(quote, file, case)
        if found is not None:
            why = f"line {found} has these words, not line {self.line}"
            return ClaimCheck(
                ClaimStatus.SUPPORTED, why, (fact(case, f"{file} line {found}", line_at(case, file, found) or ""),)
            )
        facts = (fact(case, f"{file} line {self.line}", line),)
        if line.endswith(_CUT) or not _is_as_written(case, file, self.line):
            return ClaimCheck(
                ClaimStatus.UNVERIFIABLE, "the line as shown has other words, but it is cut or partly masked", facts
            )
        near = range(max(1, self.line - _NEAR), self.line + _NEAR + 1)
        there = {word for n in near for word in _WORD.findall(line_at(case, file, n) or "")}
        if set(_WORD.findall(quote)) <= there:
            why = "all of these words are there, but not in this order: quote one line as it is"
            return ClaimCheck(ClaimStatus.UNVERIFIABLE, why, facts)
        return ClaimCheck(ClaimStatus.CONTRADICTED, "the line has other words", facts)


def _is_as_written(case: Case, file: str, number_: int) -> bool:
    """Nothing in the line was masked or escaped: a reader of the file sees the same words."""
    try:
        raw = next(read_lines(case, file, first=number_), None)
    except UnreadableInput:
        return False
    return raw is not None and case.redactor.redact(raw.text) == raw.text and raw.text.expandtabs().isprintable()


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _find_quote(quote: str, file: str, case: Case) -> int | None:
    """The first line that contains the quote, compared as lines are shown."""
    # Search the raw text for the longest word first: cleaning every line of a large log is slow.
    words: list[str] = _WORD.findall(quote)
    word = max(words, key=len)
    try:
        for line in read_lines(case, file, containing=re.compile(re.escape(word).encode())):
            if line.number > _SEARCHED:
                return None
            if quote in _single_spaced(case.clean(line.text)):
                return line.number
    except UnreadableInput:
        return None
    return None


# ---------------------------------------------------------------------------------------------------------------------
# | the rank's threads, as its stacks show them | is |
# |---|---|
# | one waits at the first line, another is at the second, and the source takes the same lock at both | supported |
# | the one at the first line is in something else (a collective, a file); or no thread is at one of the lines, and all stacks
#   were read | contradicted |
# | are at both lines, but the source does not show which lock; no stacks of the rank | unverifiable |
#
# No stack says who holds a lock. A `with` over the same name around the other thread's line shows it.

_NOT_A_LOCK = frozenset(
    {Shape.COLLECTIVE, Shape.FILE_IO, Shape.NETWORK_IO, Shape.SLEEP, Shape.COMPILE, Shape.SUBPROCESS}
)


class WaitsForLock(Claim):
    """A thread of a rank waits for a lock that another of its threads holds."""

    kind: Literal["waits-for-lock"]
    rank: int
    file: str
    line: int
    """Where the thread waits."""
    holder_file: str
    holder_line: int
    """Where the other is while it holds the lock."""

    def sentence(self) -> str:
        return (
            f"a thread of rank {number(self.rank)} waits at {named(self.file)} line {number(self.line)} for a lock held by "
            f"another at {named(self.holder_file)} line {number(self.holder_line)}"
        )

    def check(self, case: Case) -> ClaimCheck:
        places = ((self.file, self.line), (self.holder_file, self.holder_line))
        if not all(is_plain(n) for n in (self.rank, self.line, self.holder_line)):
            return ClaimCheck.unverifiable("name a rank and two lines")
        for file, line in places:
            stands = FrameAt(kind="frame", rank=self.rank, file=file, line=line).check(case)
            if stands.status is not ClaimStatus.SUPPORTED:
                return stands
        waiting, holding = (list(_threads_at(self.rank, file, line, case)) for file, line in places)
        facts = tuple(fact(case, where, f"thread at {self.file}:{self.line}") for where, _ in waiting[:2])
        if not waiting or not holding:
            return ClaimCheck(
                ClaimStatus.UNVERIFIABLE, "these lines are in recorded calls, not in stacks of threads", facts
            )
        shapes = {find_shape(stack) for _, stack in waiting}
        if shapes <= _NOT_A_LOCK:
            return ClaimCheck(
                ClaimStatus.CONTRADICTED, f"the thread there is in {', '.join(sorted(shapes))}, not at a lock", facts
            )
        return self._by_name(case, facts)

    def _by_name(self, case: Case, facts: tuple[Fact, ...]) -> ClaimCheck:
        lines = [find_line(*place, case) for place in ((self.file, self.line), (self.holder_file, self.holder_line))]
        asked, held = (_locks_at(one) if isinstance(one, Line) else frozenset[str]() for one in lines)
        shared = asked & held
        if shared:
            return ClaimCheck(
                ClaimStatus.SUPPORTED, f"both use {named(min(shared))}: one waits for it, the other is inside it", facts
            )
        return ClaimCheck(
            ClaimStatus.UNVERIFIABLE,
            "threads are at both lines, but the source does not show that it is the same lock",
            facts,
        )


def _threads_at(rank: int, file: str, line: int, case: Case) -> Iterator[tuple[str, Stack]]:
    for live in case.incident.capture.stacks:
        if live.rank == rank:
            for name, stack in (("main", live.stack), *live.others):
                files = same_files(file, {frame.filename for frame in stack}, case)
                if any(frame.filename in files and frame.line == line for frame in stack):
                    yield f"{live.file} thread {name}", stack


def _locks_at(line: Line) -> frozenset[str]:
    """Names of locks taken on the line (`with` or `acquire`), and of `with` blocks around it."""
    found: set[str] = set()
    for node in own_nodes(line.function.node):
        inside = isinstance(node, ast.With | ast.AsyncWith) and node.lineno <= line.number <= (node.end_lineno or 0)
        if inside and isinstance(node, ast.With | ast.AsyncWith):
            found |= {last_word(item.context_expr) for item in node.items}
        is_acquire = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire"
        if is_acquire and isinstance(node, ast.Call) and node.lineno == line.number:
            found |= {last_word(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
    return frozenset(found - {""})
