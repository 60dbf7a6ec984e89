"""Where in the source the lines of ranks' logs were printed: how far a rank came, and what it printed differently from
its peers.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.model.capture import Capture
from forkpoint.model.op import Frame, Stack
from forkpoint.source.bridge.search import ProgramFlow
from forkpoint.source.code import Function
from forkpoint.source.syntax import all_arguments, last_word, names_in

PRINTS = frozenset({"print", "info", "warning", "warn", "error", "debug", "critical", "exception", "log", "write", "echo",
                    "log_rank", "print_rank"})  # fmt: skip
_LEAST = 7
"""Minimum number of letters of a message that must be written in the source: two short words. With fewer, any line
would fit.
"""
_FIELD = re.compile(r"%[-+ #0-9.]*[a-zA-Z]|\{[^{}]*\}")
_NUMBER = re.compile(r"[0-9]+")
_PREFIX = re.compile(
    r"^(?:[\[(]?\d[\d:.,/TZ+ -]{4,40}[\])]? {0,3}|\[[^\]]{1,30}\] {0,3}|(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL)\b[ :|-]{0,9})+"
)
"""What loggers put before a message: times, levels and ranks."""
_MOST_LOGS = 64
_MOST_CALLERS = 12


@dataclass(frozen=True, slots=True)
class Message:
    """A call that prints, and the form of what it prints."""

    call: ast.Call
    function: Function
    fits: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line of a rank's log, starting at the words of the message, and the call that printed it."""

    text: str
    message: Message
    file: str
    line: int

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(_NUMBER.findall(self.text))

    def is_printed_in(self, block: Sequence[ast.stmt]) -> bool:
        return any(self.message.call in ast.walk(statement) for statement in block)


def find_messages(flow: ProgramFlow) -> Iterator[Message]:
    functions = list(flow.analysis.program.functions())
    own = frozenset(function.short for function in functions if _prints_parameter(function))
    for function in functions:
        for call in function.calls:
            if last_word(call.func) in PRINTS | own:
                fits = next(filter(None, map(_pattern, all_arguments(call))), None)
                if fits is not None:
                    yield Message(call, function, fits)


def _prints_parameter(function: Function) -> bool:
    """`def say(text): print(f"{now()} w{rank} {text}")`: it prints its argument."""
    printed = [a for call in function.calls if last_word(call.func) in PRINTS for a in all_arguments(call)]
    rest = function.node.args.vararg if isinstance(function.node, ast.FunctionDef | ast.AsyncFunctionDef) else None
    given = {*function.params, *([rest.arg] if rest else [])}
    return any(names_in(argument) & given for argument in printed)


def _pattern(expr: ast.expr) -> re.Pattern[str] | None:
    """`f"rank {rank}: skipping"`, `"skipping %d" % n`, `"skipping {}".format(n)`: the literal text, with gaps."""
    match expr:
        case ast.Constant(value=str() as text):
            parts = _FIELD.split(text)
        case ast.JoinedStr():
            parts = [v.value if isinstance(v, ast.Constant) and isinstance(v.value, str) else "" for v in expr.values]
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod()):
            parts = _FIELD.split(text)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            parts = _FIELD.split(text)
        case _:
            return None
    written = [part.strip() for part in parts if part.strip()]
    letters = sum(c.isalpha() for part in written for c in part)
    return re.compile(".{0,200}?".join(map(re.escape, written))) if letters >= _LEAST else None


def read_words(capture: Capture, flow: ProgramFlow) -> dict[int, list[Spoken]]:
    """By rank, in order: its lines that exactly one call of the source can have printed."""
    messages = sorted(find_messages(flow), key=lambda m: -len(m.fits.pattern))
    shared = Counter(file for file, _ in capture.logs)
    owners = {file: rank for file, rank in capture.logs if shared[file] == 1}
    known: dict[str, Message | None] = {}
    found: dict[int, list[Spoken]] = {}
    for file, lines in list(capture.printed.items())[:_MOST_LOGS] if messages else ():
        for line in lines:
            rank = line.rank if line.rank is not None else owners.get(file)
            form = plain(line.text)
            if form not in known:
                known[form] = _printed_by(line.text, messages)
            message = known[form]
            text = _PREFIX.sub("", line.text)
            fit = (message.fits.search(text) or message.fits.search(line.text)) if message else None
            if rank is not None and message is not None and fit is not None:
                said = fit.string[fit.start() :].lstrip(" :,")
                found.setdefault(rank, []).append(Spoken(said, message, file, line.line))
    return found


def plain(text: str) -> str:
    return _NUMBER.sub("0", text)


def _printed_by(text: str, messages: Sequence[Message]) -> Message | None:
    """The call with the most words, which come first; None if two have the same."""
    fitting = [m for m in messages if m.fits.search(text)]
    if len(fitting) > 1 and fitting[0].fits.pattern == fitting[1].fits.pattern:
        return None
    return fitting[0] if fitting else None


def stack_of(spoken: Spoken, flow: ProgramFlow) -> Stack:
    """The call that printed it and, as long as there is only one, the call of the function around it."""
    function, line = spoken.message.function, spoken.message.call.lineno
    frames: list[Frame] = []
    while len(frames) < _MOST_CALLERS:
        frames.append(Frame(function.short, function.module.path, line))
        sites = list(flow.analysis.resolver.call_sites(function))
        if len(sites) != 1 or sites[0][1] is function:
            break
        line, function = sites[0][0].lineno, sites[0][1]
    return tuple(frames)


# ---------------------------------------------------------------------------------------------------------------------
# One line, printed by one call on every rank, with another number on some.


@dataclass(frozen=True, slots=True)
class OddLine:
    """What these ranks printed, and what all others printed in its place."""

    ranks: tuple[int, ...]
    own: Spoken
    usual: str


def find_odd(words: dict[int, list[Spoken]], suspects: Sequence[int]) -> Iterator[OddLine]:
    """Without numbers that identify the rank. If there are no suspects: the line of the only rank that differs from all
    others.
    """
    first: dict[ast.Call, dict[int, Spoken]] = {}
    for rank, lines in words.items():
        for spoken in lines:
            first.setdefault(spoken.message.call, {}).setdefault(rank, spoken)
    for said in first.values():
        seen = _without_own({rank: spoken.numbers for rank, spoken in said.items()})
        for odd in [tuple(r for r in suspects if r in said)] if suspects else [(r,) for r in seen]:
            usual = {numbers for rank, numbers in seen.items() if rank not in odd}
            others = [rank for rank in seen if rank not in odd]
            differs = bool(odd) and all(seen[rank] not in usual for rank in odd)
            if differs and len(others) > 1 and len(others) > len(odd) and len(usual) == 1:
                yield OddLine(odd, said[odd[0]], said[others[0]].text)


def _without_own(numbers: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Without the positions at which every rank printed its own number."""
    columns = list(zip(*numbers.values(), strict=False))
    own = [
        i for i, column in enumerate(columns) if all(int(n) == rank for n, rank in zip(column, numbers, strict=True))
    ]
    return {rank: tuple(n for i, n in enumerate(values) if i not in own) for rank, values in numbers.items()}
