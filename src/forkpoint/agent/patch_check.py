"""A patch that a model wrote, read strictly and checked before anybody sees it. Nothing is written or run."""

import ast
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from forkpoint.agent.hypothesis import Remedy
from forkpoint.agent.patch_names import fresh_imports, fresh_names, refused_names, told_names
from forkpoint.brief.case import Case, QuestionRefused, named
from forkpoint.remedies.edit import normal_text, unified
from forkpoint.remedies.scene import Scene
from forkpoint.source.code import FunctionNode, Module, parse_module

# ---------------------------------------------------------------------------------------------------------------------
# A strict parser of the unified diff that a model wrote: changes to existing files, and nothing else.
#
# Everything else that a patch can do (create, delete or rename files, modes, binary content) is refused, and so is any line
# that is not part of a diff. Hunks apply exactly at their line or not at all.

MAX_CHARACTERS = 20_000
MAX_FILES = 4
_HUNK = re.compile(r"@@ -([0-9]{1,7})(?:,([0-9]{1,7}))? \+[0-9]{1,7}(?:,([0-9]{1,7}))? @@.*")
_SKIPPED = re.compile(r"(diff --git a/\S+ b/\S+|index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}( 100644)?|)")
_OPEN_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Hunk:
    at: int
    """Index of the first line that it replaces."""
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    """With their line ends."""
    removed: frozenset[int]
    """Line numbers in the old file."""
    added: frozenset[int]
    """Indices into `after`."""


@dataclass(frozen=True, slots=True)
class FilePatch:
    name: str
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A file after its hunks were applied."""

    after: bytes
    removed: frozenset[int]
    added: frozenset[int]
    """Line numbers of changes: `removed` in the old file, `added` in the new one."""


def read_patch(text: str) -> tuple[FilePatch, ...]:
    """Raises Refused."""
    if len(text) > MAX_CHARACTERS:
        raise QuestionRefused(f"the patch has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    odd = next((c for c in text.replace("\r\n", "\n") if not c.isprintable() and c not in "\n\t"), None)
    if odd is not None:
        raise QuestionRefused(f"the patch has an unprintable character: U+{ord(odd):04X}")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    files = tuple(_files(_Lines(lines)))
    if not files:
        raise QuestionRefused("the patch changes no file: it must begin with `--- a/FILE` and `+++ b/FILE`")
    if len(files) > MAX_FILES or len({f.name for f in files}) < len(files):
        raise QuestionRefused(f"a patch may change at most {MAX_FILES} files, each once")
    return files


def apply(patch: FilePatch, before: bytes) -> Applied:
    """Applies the hunks exactly at their lines. Raises Refused."""
    lines = [line for line in re.findall(rb"[^\n]*\n|[^\n]+", before) if isinstance(line, bytes)]
    after: list[bytes] = []
    removed: set[int] = set()
    added: set[int] = set()
    done = 0
    for hunk in patch.hunks:
        there = done <= hunk.at <= len(lines)
        if not there or tuple(lines[hunk.at : hunk.at + len(hunk.before)]) != hunk.before:
            raise QuestionRefused(f"the hunk at line {hunk.at + 1} does not match the file")
        after += lines[done : hunk.at]
        removed |= hunk.removed
        added |= {len(after) + index + 1 for index in hunk.added}
        after += hunk.after
        done = hunk.at + len(hunk.before)
    after += lines[done:]
    if any(not line.endswith(b"\n") for line in after[:-1]):
        raise QuestionRefused("a line without a newline comes before other lines")
    return Applied(b"".join(after), frozenset(removed), frozenset(added))


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._next = 0

    def peek(self) -> str | None:
        return self._lines[self._next] if self._next < len(self._lines) else None

    def take(self) -> str:
        line = self.peek()
        if line is None:
            raise QuestionRefused("the patch ends in the middle")
        self._next += 1
        return line

    @property
    def number(self) -> int:
        return self._next + 1


def _files(lines: _Lines) -> Iterator[FilePatch]:
    while (line := lines.peek()) is not None:
        if line.startswith("--- "):
            yield _file(lines)
        elif _SKIPPED.fullmatch(line.rstrip("\r")):
            lines.take()
        else:
            raise QuestionRefused(f"line {lines.number} of the patch is not part of a plain change to a file")


def _file(lines: _Lines) -> FilePatch:
    old, new = _name(lines.take(), "--- a/"), _name(lines.take(), "+++ b/")
    if old != new:
        raise QuestionRefused("a patch may not create, delete or rename files")
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and line.startswith("@@"):
        hunks.append(_hunk(lines))
    if not any(hunk.removed or hunk.added for hunk in hunks):
        raise QuestionRefused("the patch changes nothing")
    return FilePatch(old, tuple(hunks))


def _name(line: str, lead: str) -> str:
    if not line.startswith(lead):
        raise QuestionRefused(f"expected `{lead}FILE`; a patch may not create or delete files")
    return line.removeprefix(lead).partition("\t")[0].rstrip("\r")


def _hunk(lines: _Lines) -> Hunk:
    head = _HUNK.fullmatch(lines.take().rstrip("\r"))
    if head is None:
        raise QuestionRefused("a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`")
    start, old, new = int(head[1]), int(head[2] or 1), int(head[3] or 1)
    at = start if old == 0 else start - 1
    before: list[bytes] = []
    after: list[bytes] = []
    removed: set[int] = set()
    added: set[int] = set()
    while len(before) < old or len(after) < new:
        sign, text = _signed(lines)
        if sign in " -":
            removed |= {at + len(before) + 1} if sign == "-" else set()
            before.append(text)
        if sign in " +":
            added |= {len(after)} if sign == "+" else set()
            after.append(text)
    if len(before) != old or len(after) != new or at < 0:
        raise QuestionRefused("the number of lines in a hunk does not match its header")
    return Hunk(at, tuple(before), tuple(after), frozenset(removed), frozenset(added))


def _signed(lines: _Lines) -> tuple[str, bytes]:
    line = lines.take() or " "
    if line[0] not in " +-":
        raise QuestionRefused(
            f"line {lines.number - 1} of the patch is inside a hunk but does not begin with ` `, `+` or `-`"
        )
    end = b"\n"
    if (following := lines.peek()) is not None and following.rstrip("\r") == _OPEN_END:
        lines.take()
        end = b""
    return line[0], line[1:].encode() + end


# ---------------------------------------------------------------------------------------------------------------------
# Checks a patch that a model wrote before anybody sees it. Nothing is written or run.
#
# A patch must apply exactly to source files that were read, must still parse, must stay inside the named functions, and must
# not introduce names that run, fetch or unpack something. What passes is shown as untrusted: as a diff that the engine made of
# the two versions, with notes on what to look at.

MAX_FUNCTIONS: Final = 8
_LISTED: Final = 12
_NOT_READ: Final = "untrusted: a model wrote it, and we only checked that it applies, parses and stays in its functions"


@dataclass(frozen=True, slots=True)
class _Changed:
    """One file, before and after the patch."""

    name: str
    before: Module
    after: Module
    functions: frozenset[str]
    """The named functions that are in this file."""
    first: int
    """The first line that changed."""
    diff: str

    @property
    def bodies(self) -> tuple[list[ast.AST], list[ast.AST]]:
        return [*_nodes(self.before, self.functions)], [*_nodes(self.after, self.functions)]


def check_patch(case: Case, patch: str, functions: Sequence[str]) -> Remedy:
    """`functions` are named as the source names them: `Trainer.fit`, `main`. Raises Refused."""
    if not 0 < len(functions) <= MAX_FUNCTIONS:
        raise QuestionRefused(f"name the functions that the patch changes: 1 to {MAX_FUNCTIONS} of them")
    changed = [_changed(case, part, functions) for part in read_patch(patch)]
    unused = set(functions) - {name for c in changed for name in c.functions}
    if unused:
        raise QuestionRefused(f"no file of the patch has a function {named(min(unused))}")
    names = sorted({name for c in changed for name in c.functions})
    return Remedy(
        kind="fix",
        title=f"A change to {', '.join(named(name) for name in names)} that the model wrote",
        where=f"{changed[0].name}:{changed[0].first}",
        patch="".join(c.diff for c in changed),
        trusted=False,
        notes=(_NOT_READ, *(note for c in changed for note in _notes(c))),
    )


def _module(case: Case, name: str) -> Module:
    """By exact name only: a patch can change only source that was read."""
    if case.analysis is not None:
        scene = Scene(None, case.analysis, case.source)
        for module in case.analysis.program.modules.values():
            if scene.name(module) == name:
                return module
    raise QuestionRefused(f"{named(name)} is not in the source that was read")


def _bytes(module: Module, name: str) -> bytes:
    try:
        before = Path(module.path).read_bytes()
    except OSError as error:
        raise QuestionRefused(f"{named(name)} cannot be read again ({error.strerror})") from error
    if normal_text(before) != module.text.encode("utf-8", "surrogatepass"):
        raise QuestionRefused(f"{named(name)} has changed since it was read, or is not UTF-8")
    return before


def _changed(case: Case, patch: FilePatch, functions: Sequence[str]) -> _Changed:
    name = patch.name
    old = _module(case, name)
    before = _bytes(old, name)
    applied = apply(patch, before)
    new = _parsed(name, old, before, applied.after)
    held = frozenset(functions) & old.functions.keys() - {"<module>"}
    if not held:
        raise QuestionRefused(f"{named(name)} has none of the named functions")
    _stay_inside(applied.removed, old, held, name)
    _stay_inside(applied.added, new, held, name)
    if _outside(old, held) != _outside(new, held):
        raise QuestionRefused(f"{named(name)}: the patch changes something outside the bodies of the named functions")
    changed = _Changed(
        name, old, new, held, min(applied.removed or applied.added), unified(name, before, applied.after).decode()
    )
    bad = refused_names(fresh_names(*changed.bodies, old, new))
    if bad:
        raise QuestionRefused(f"{named(name)}: a patch may not introduce {named(bad[0])}")
    return changed


def _parsed(name: str, old: Module, before: bytes, after: bytes) -> Module:
    try:
        if _encoding(before) != _encoding(after):
            raise QuestionRefused(f"{named(name)}: the patch changes how the file is encoded")
        ast.parse(after)
        return parse_module(old.path, old.name, normal_text(after).decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise QuestionRefused(f"{named(name)} would no longer parse{line}") from error


def _encoding(data: bytes) -> str:
    return tokenize.detect_encoding(BytesIO(data).readline)[0]


def _stay_inside(lines: frozenset[int], module: Module, functions: frozenset[str], name: str) -> None:
    """Checks line numbers, because comments are not in the syntax tree."""
    inside = {line for node in _nodes(module, functions) for line in _lines(node)}
    outside = sorted(lines - inside)
    if outside:
        raise QuestionRefused(f"{named(name)}: line {outside[0]} is not in a named function")


def _lines(node: FunctionNode) -> range:
    return range(getattr(node, "lineno", 1), (getattr(node, "end_lineno", None) or 0) + 1)


def _nodes(module: Module, functions: frozenset[str]) -> Iterator[FunctionNode]:
    yield from (module.functions[name].node for name in sorted(functions) if name in module.functions)


def _outside(module: Module, functions: frozenset[str]) -> str:
    """A module's tree without the bodies of these functions, as text."""
    return ast.dump(_Emptied(functions).visit(ast.parse(module.text)))


class _Emptied(ast.NodeTransformer):
    """Empties the bodies of these functions."""

    def __init__(self, functions: frozenset[str]) -> None:
        self._functions = functions
        self._above: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if ".".join([*self._above, node.name]) in self._functions:
            node.body = [ast.Pass()]
            return node
        return self._inside(node)

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        self._above.append(node.name)
        self.generic_visit(node)
        self._above.pop()
        return node


def _notes(changed: _Changed) -> Iterator[str]:
    before, after = changed.bodies
    imports = fresh_imports(before, after)
    fresh = fresh_names(before, after, changed.before, changed.after)
    told = told_names(fresh)
    if imports:
        yield f"{changed.name}: imports {_list(imports)}"
    if told:
        yield f"{changed.name}: uses {_list(told)}, which can affect things outside the program"
    if not changed.diff.isascii() and changed.before.text.isascii():
        yield f"{changed.name}: adds characters beyond ASCII"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(named(name) for name in names[:_LISTED]) + more
