"""A unified diff as a model wrote it, read strictly: changes to files that are there, and nothing else.

Everything that a patch can do beside changing lines (making, deleting, renaming files, modes, binary content) is refused,
and so is a line that belongs to none of it. Hunks are put in exactly where they say, or not at all.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.agent.tool import Refused

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
    """Numbers of lines, as the file was."""
    added: frozenset[int]
    """Indices into `after`."""


@dataclass(frozen=True, slots=True)
class FilePatch:
    name: str
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """A file with its hunks in it."""

    after: bytes
    removed: frozenset[int]
    added: frozenset[int]
    """Numbers of the lines that changed: as the file was, and as it is."""


def read_patch(text: str) -> tuple[FilePatch, ...]:
    """Raises Refused."""
    if len(text) > MAX_CHARACTERS:
        raise Refused(f"the patch has {len(text)} characters; {MAX_CHARACTERS} are read")
    odd = next((c for c in text.replace("\r\n", "\n") if not c.isprintable() and c not in "\n\t"), None)
    if odd is not None:
        raise Refused(f"the patch has a character that is not shown: U+{ord(odd):04X}")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    files = tuple(_files(_Lines(lines)))
    if not files:
        raise Refused("no change of a file is in the patch: it begins with `--- a/FILE` and `+++ b/FILE`")
    if len(files) > MAX_FILES or len({f.name for f in files}) < len(files):
        raise Refused(f"a patch changes at most {MAX_FILES} files, each once")
    return files


def apply(patch: FilePatch, before: bytes) -> Applied:
    """Exactly where the hunks say. Raises Refused."""
    lines = [line for line in re.findall(rb"[^\n]*\n|[^\n]+", before) if isinstance(line, bytes)]
    after: list[bytes] = []
    removed: set[int] = set()
    added: set[int] = set()
    done = 0
    for hunk in patch.hunks:
        there = done <= hunk.at <= len(lines)
        if not there or tuple(lines[hunk.at : hunk.at + len(hunk.before)]) != hunk.before:
            raise Refused(f"the hunk at line {hunk.at + 1} is not what stands there")
        after += lines[done : hunk.at]
        removed |= hunk.removed
        added |= {len(after) + index + 1 for index in hunk.added}
        after += hunk.after
        done = hunk.at + len(hunk.before)
    after += lines[done:]
    if any(not line.endswith(b"\n") for line in after[:-1]):
        raise Refused("a line without an end stands before others")
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
            raise Refused("the patch ends in the middle")
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
            raise Refused(f"line {lines.number} of the patch is not of a plain change to a file")


def _file(lines: _Lines) -> FilePatch:
    old, new = _name(lines.take(), "--- a/"), _name(lines.take(), "+++ b/")
    if old != new:
        raise Refused("a patch may not make, delete or rename files")
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and line.startswith("@@"):
        hunks.append(_hunk(lines))
    if not any(hunk.removed or hunk.added for hunk in hunks):
        raise Refused("the patch changes nothing")
    return FilePatch(old, tuple(hunks))


def _name(line: str, lead: str) -> str:
    if not line.startswith(lead):
        raise Refused(f"a file is named by `{lead}FILE`; files are not made or deleted")
    return line.removeprefix(lead).partition("\t")[0].rstrip("\r")


def _hunk(lines: _Lines) -> Hunk:
    head = _HUNK.fullmatch(lines.take().rstrip("\r"))
    if head is None:
        raise Refused("a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`")
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
        raise Refused("the lines of a hunk are not as many as its head says")
    return Hunk(at, tuple(before), tuple(after), frozenset(removed), frozenset(added))


def _signed(lines: _Lines) -> tuple[str, bytes]:
    line = lines.take() or " "
    if line[0] not in " +-":
        raise Refused(f"line {lines.number - 1} of the patch begins with none of ` `, `+` and `-`, inside a hunk")
    end = b"\n"
    if (following := lines.peek()) is not None and following.rstrip("\r") == _OPEN_END:
        lines.take()
        end = b""
    return line[0], line[1:].encode() + end
