"""The program, as much as fits: all of it if it is short, else the functions in which ranks are and those that decide.

Each line of source follows its number and a bar; notes about a line are on a line of their own, which begins with `^`.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.brief.case import Case, line_of, name_module, shortened
from forkpoint.brief.where import find_standings
from forkpoint.model.frames import up_to_script, user_frames
from forkpoint.model.op import Stack
from forkpoint.model.world import name_ranks
from forkpoint.source.bridge import relative
from forkpoint.source.code import Function, Module

_RANGES = 4
_NEAR, _AROUND = 3, 8
_SHORT = 45
"""A function with at most this many lines is shown whole."""
_LONG = 160
_FEW = 20
"""A function with at most this many lines is shown before longer ones."""
_PLACES = 60
_FORKS = 3
_DATA = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".sh", ".txt")
_DATA_FILES, _DATA_BYTES = 8, 400


@dataclass(slots=True)
class MarkedLines:
    """Lines of the program that matter, the most important first, and notes about them."""

    order: list[tuple[Module, int]] = field(default_factory=list)
    notes: dict[tuple[str, int], dict[str, set[int]]] = field(default_factory=dict)
    """Notes about each line, with the ranks to which each applies; no ranks if it applies to the line itself."""

    def add(self, module: Module, line: int, note: str | None = None, ranks: Iterable[int] = ()) -> None:
        if (module, line) not in self.order:
            self.order.append((module, line))
        if note is not None:
            self.notes.setdefault((module.path, line), {}).setdefault(note, set()).update(ranks)


def mark_lines(case: Case) -> MarkedLines:
    """Where ranks are and failed, then the likely forks according to the source analysis, then their callers."""
    marked, callers = MarkedLines(), MarkedLines()
    for stack, note, ranks in _stacks(case):
        for depth, frame in enumerate(up_to_script(user_frames(stack))):
            module = case.analysis.program.module_at(frame.filename) if case.analysis is not None else None
            if module is not None and 1 <= frame.line <= len(module.lines):
                (marked if not depth else callers).add(module, frame.line, note if not depth else None, ranks)
    for fork in case.forks[:_FORKS]:
        marked.add(fork.function.module, fork.node.lineno, f"possible fork ({fork.kind})")
        for reason in sorted(fork.reasons, key=lambda one: (one.file, one.line)):
            module = case.analysis.program.modules.get(reason.file) if case.analysis is not None else None
            if module is not None:
                marked.add(module, reason.line, f"{reason.expression}: {reason.text}")
    for module, line in callers.order:
        marked.add(module, line)
    return marked


def _stacks(case: Case) -> Iterator[tuple[Stack, str, Sequence[int]]]:
    for one in find_standings(case)[:_PLACES]:
        for call in one.calls:
            yield call.op.stack or (), "wait in this call" if one.are_open else "finished this call last", one.ranks
        for live in one.live:
            yield live.stack, "main thread was here", one.ranks
            yield from ((stack, "another thread was here", one.ranks) for _, stack in live.others)
    failed: dict[Stack, set[int]] = {}
    for event in case.incident.capture.events:
        if event.stack and event.is_failure:
            failed.setdefault(event.stack, set()).update(() if event.rank is None else (event.rank,))
    for stack, ranks in list(failed.items())[:_PLACES]:
        yield stack, "in an error that was logged", sorted(ranks)


# ---------------------------------------------------------------------------------------------------------------------
# Lines in order of importance, shown in order of place.

_Line = tuple[int, str]


class Excerpts:
    """The parts of the program that fit a number of characters."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._marked = mark_lines(case) if case.analysis is not None else MarkedLines()
        self._wanted = [*self._order()] if case.analysis is not None else []

    def whole(self) -> tuple[str, ...]:
        return tuple(self._render(self._wanted))

    def fit(self, room: int) -> tuple[str, ...]:
        """As many of the most important blocks as fit."""
        chosen: list[tuple[Module, range]] = []
        for block in self._wanted:
            if sum(len(line) + 1 for line in self._render([*chosen, block])) <= room:
                chosen.append(block)
            elif len(block[1]) > 2 * _AROUND:
                chosen += self._part_of(block, chosen, room)
        return tuple(self._render(chosen))

    def _part_of(
        self, block: tuple[Module, range], chosen: list[tuple[Module, range]], room: int
    ) -> list[tuple[Module, range]]:
        """The important lines of a block that does not fit as a whole, with their surroundings."""
        module, lines = block
        points = [line for at, line in self._marked.order if at is module and line in lines]
        found: list[tuple[Module, range]] = []
        for around in (_AROUND, 2):
            for line in points:
                piece = (module, range(max(lines.start, line - around), min(lines.stop, line + around + 1)))
                if sum(len(one) + 1 for one in self._render([*chosen, *found, piece])) <= room:
                    found.append(piece)
            if found:
                break
        return found

    def _order(self) -> Iterator[tuple[Module, range]]:
        """Marked lines with their surroundings; their functions; the functions that these call or that call them; functions that
        communicate; the rest.
        """
        analysis = self._case.analysis
        assert analysis is not None
        seen: dict[Function, int] = {}
        for module, line in self._marked.order:
            function = module.function_at(line)
            if function is not None and function is not module.top:
                seen.setdefault(function, line)
            yield module, _window(module, function, line, _NEAR)
        marked = [*seen]
        near = [f for one in marked for call in one.calls for f in analysis.resolver.callees(call, one).functions]
        near += [caller for one in marked for _, caller in analysis.resolver.call_sites(one)]
        talking = sorted(analysis.communicating(), key=lambda f: (f.module.path, f.line))
        for function in (*near, *talking):
            if function is not function.module.top:
                seen.setdefault(function, function.line)
        blocks = [(function.module, _extent(function, line)) for function, line in seen.items()]
        yield from (block for block in blocks if len(block[1]) <= _FEW)
        yield from (block for block in blocks if len(block[1]) > _FEW)
        paths = {function.module.path for function in seen}
        rest = sorted(analysis.program.modules.values(), key=lambda m: (m.path not in paths, len(m.lines), m.path))
        for module in rest:
            others = [f for f in module.functions.values() if f not in seen and f is not module.top]
            yield from ((module, _extent(function, function.line)) for function in others)
        yield from ((module, range(1, len(module.lines) + 1)) for module in rest)

    def _render(self, blocks: Sequence[tuple[Module, range]]) -> Iterator[str]:
        by_module: dict[str, tuple[Module, set[int]]] = {}
        for module, lines in blocks:
            by_module.setdefault(module.path, (module, set()))[1].update(lines)
        for module, numbers in by_module.values():
            written = [(n, _narrow(line_of(module, n).rstrip(), module)) for n in sorted(numbers)]
            written = [(n, text) for n, text in written if text.strip()]
            total = sum(1 for line in module.lines if line.strip())
            part = "whole" if len(written) == total else f"{len(written)} of {total} lines"
            yield self._case.clean(f"{name_module(self._case, module)} ({part})")
            for number, text in written:
                yield f"{number}|{shortened(self._case, text, _LONG)}"
                for note, ranks in self._marked.notes.get((module.path, number), {}).items():
                    who = f"{name_ranks(ranks, _RANGES)}: " if ranks else ""
                    yield self._case.clean(f"   ^ {who}{note}")


def _narrow(text: str, module: Module) -> str:
    """One space for each level of four. Other levels stay as they are."""
    indent = len(text) - len(text.lstrip(" "))
    by_fours = all(getattr(f.node, "col_offset", 0) % 4 == 0 for f in module.functions.values())
    return " " * (indent // 4 + indent % 4) + text[indent:] if by_fours else text


def _window(module: Module, function: Function | None, line: int, around: int) -> range:
    """Lines around one, inside its function."""
    whole = range(1, len(module.lines) + 1) if function is None or function is module.top else _extent(function, line)
    return range(max(whole.start, line - around), min(whole.stop, line + around + 1))


def _extent(function: Function, line: int) -> range:
    """A short function as a whole; of a long one the surrounding lines."""
    last = getattr(function.node, "end_lineno", None) or function.line
    decorated = [d.lineno for d in getattr(function.node, "decorator_list", ())]
    first = min([function.line, *decorated])
    if last - first < _SHORT:
        return range(first, last + 1)
    return range(max(first, line - _AROUND), min(last, line + _AROUND) + 1)


# ---------------------------------------------------------------------------------------------------------------------
# Files next to the program that are not Python: the run's settings, or the state it resumed from.


def tell_data_files(case: Case) -> Iterator[str]:
    """The text of short files, and the names of others. Links are not followed."""
    found = [path for root in case.source if Path(root).is_dir() for path in _data_files(Path(root))]
    for path in found[:_DATA_FILES]:
        text = _read_short(path)
        name = relative(str(path), case.source)
        yield case.clean(f"{name} |{text}" if text else f"{name} (not shown)")
    if len(found) > _DATA_FILES:
        yield f"{len(found) - _DATA_FILES} more files"


def _data_files(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))[:50]
        found += [Path(folder) / name for name in sorted(names) if name.endswith(_DATA)]
        if len(found) > 200 or len(Path(folder).relative_to(root).parts) > 4:
            break
    return found


def _read_short(path: Path) -> str:
    try:
        told = path.lstat()
        if not stat.S_ISREG(told.st_mode) or told.st_size > _DATA_BYTES:
            return ""
        return " ".join(path.read_text("utf-8", "replace").split())
    except OSError:
        return ""
