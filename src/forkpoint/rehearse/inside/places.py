"""Finds the line of the user's source that makes a call, and what the `try` around it catches."""

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from forkpoint.rehearse.model import CodeSite

_NOT_OURS: Final = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "/.venv/", "/forkpoint/rehearse/")
_CONTROL: Final = frozenset({"StopIteration", "StopAsyncIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit",
                             "ImportError", "ModuleNotFoundError", "AttributeError"})  # fmt: skip
"""Caught to end a loop, to exit, or to detect what is installed: not failures that could hit one rank."""

_TRYING = str(Path(__file__).with_name("trying.py"))


class CodePlaces:
    """Maps frames to sites in the user's files, with a cache."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = tuple(str(Path(root).resolve()) for root in roots)
        self._own: dict[str, str | None] = {}
        self._sites: dict[tuple[str, int], CodeSite] = {}

    def at(self, frame: FrameType) -> CodeSite | None:
        """None: the frame belongs to a library."""
        code = frame.f_code
        name = code.co_filename
        own = self._own.get(name, "")
        if own == "":
            self._own[name] = None  # `_shown` uses the file system, whose taps call `at` again
            own = self._own[name] = self._shown(name)
        if own is None:
            return None
        key = (name, frame.f_lineno)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = CodeSite(own, frame.f_lineno, code.co_name)
        return site

    def asking(self, frame: FrameType) -> CodeSite | None:
        """The caller of a tap. A function inside `try` has two wrappers, so one frame of ours may be between."""
        behind = frame.f_back if frame.f_code.co_filename == _TRYING else None
        return self.at(behind or frame)

    def nearest(self, frame: FrameType | None) -> CodeSite | None:
        """The innermost frame of the user's code."""
        while frame is not None:
            site = self.at(frame)
            if site is not None:
                return site
            frame = frame.f_back
        return None

    def is_own(self, filename: str) -> bool:
        return self._shown(filename) is not None

    def _shown(self, filename: str) -> str | None:
        path = str(Path(filename).resolve()) if filename and not filename.startswith("<") else filename
        if any(part in path for part in _NOT_OURS):
            return None
        for root in self._roots:
            if path.startswith(f"{root}/"):
                return path[len(root) + 1 :]
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Calls inside `try`.


@dataclass(frozen=True, slots=True)
class GuardedLines:
    """The statements of one `try` that has handlers."""

    first: int
    last: int
    catches: tuple[str, ...]
    """As written: dotted names; "" for a bare `except`."""


def find_guarded(tree: ast.AST) -> list[GuardedLines]:
    """Inner ones come last, so that the last one that contains a line counts."""
    found: list[GuardedLines] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            caught = tuple(name for handler in node.handlers for name in _names(handler.type))
            wanted = tuple(name for name in caught if name.rpartition(".")[2] not in _CONTROL)
            if wanted:
                found.append(GuardedLines(node.body[0].lineno, node.body[-1].end_lineno or 0, wanted))
    return sorted(found, key=lambda lines: (lines.first, -lines.last))


def find_guarded_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call in the body of a `try` with handlers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            for statement in node.body:
                yield from (part for part in ast.walk(statement) if isinstance(part, ast.Call))


def _names(kind: ast.expr | None) -> Iterator[str]:
    if kind is None:
        yield ""
    for part in kind.elts if isinstance(kind, ast.Tuple) else [kind]:
        name = dotted(part)
        if name:
            yield name


def dotted(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


class TryTable:
    """What the `try` around a line catches. Files are parsed on first use."""

    def __init__(self) -> None:
        self._files: dict[str, list[GuardedLines]] = {}

    def catches(self, frame: FrameType) -> tuple[type[BaseException], ...]:
        """Exception types caught around the call that this frame is making; () if none."""
        name, line = frame.f_code.co_filename, frame.f_lineno
        if name not in self._files:
            self._files[name] = find_guarded(parse(name))
        around = [lines for lines in self._files[name] if lines.first <= line <= lines.last]
        if not around:
            return ()
        kinds = [look_up(text, frame.f_globals) for text in around[-1].catches]
        return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException))


def parse(filename: str) -> ast.Module:
    """An empty module if the source cannot be read."""
    try:
        return ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def look_up(name: str, names: dict[str, Any]) -> Any:
    """Resolves a dotted name in a module; None if it does not exist. "" is a bare `except`."""
    if not name:
        return Exception
    first, *rest = name.split(".")
    value = names.get(first, getattr(builtins, first, None))
    for part in rest:
        value = getattr(value, part, None)
    return value


def user_modules(places: CodePlaces) -> list[Any]:
    loaded = list(sys.modules.values())
    files = [(module, getattr(module, "__file__", None)) for module in loaded]
    return [module for module, file in files if isinstance(file, str) and places.is_own(file)]
