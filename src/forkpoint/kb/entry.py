"""What the knowledge base is made of."""

from dataclasses import dataclass
from enum import StrEnum


class EntryKind(StrEnum):
    """One file of `entries/` each."""

    CAUSE = "cause"
    XID = "xid"
    SXID = "sxid"
    NCCL = "nccl"
    VARIABLE = "variable"
    LINE = "line"
    KNOWN = "known"
    """Problems that others met and solved: what their logs showed, and what it was there."""


NUMBERED = frozenset({EntryKind.XID, EntryKind.SXID})
"""Kinds whose codes are numbers: `79` is typed as `xid79` where it could mean something else."""


@dataclass(frozen=True, slots=True)
class Entry:
    kind: EntryKind
    code: str
    """What a person types: `79`, `ncclRemoteError`, `NCCL_TIMEOUT`, `divergent-path`."""
    title: str
    """One line, without a full stop."""
    means: str
    not_means: str
    """What it is often taken for and is not; empty where nobody errs."""
    do: tuple[str, ...]
    """Next steps, in order. Nothing here kills, resets or deletes on its own: who operates the node decides."""
    facts: tuple[tuple[str, str], ...]
    """Figures with their label: default, unit, likelier origin."""
    aliases: tuple[str, ...]
    """Other spellings that find this entry."""
    see: tuple[str, ...]
    """Related entries, as a person would type them."""
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """The code as it stands in a sentence: `Xid 79`."""
        return {EntryKind.XID: f"Xid {self.code}", EntryKind.SXID: f"SXid {self.code}"}.get(self.kind, self.code)

    @property
    def query(self) -> str:
        """What to type to get here from anywhere."""
        return f"{self.kind}{self.code}" if self.kind in NUMBERED else self.code


@dataclass(frozen=True, slots=True)
class LineMark:
    """How a pasted line shows that an entry is meant: any of the texts, or any of the patterns."""

    entry: Entry
    texts: tuple[str, ...]
    patterns: tuple[str, ...]
    """Regular expressions whose repetitions are all bounded, so that no line can make them slow. A named group points
    to another entry: `(?P<xid>\\d{1,3})` to that Xid, `(?P<name>...)` to the entry of that name."""


class ClueField(StrEnum):
    """Where in a log a clue stands."""

    KIND = "kind"
    """What the line says, as a verdict's evidence names it: `watchdog-timeout`."""
    PATTERN = "pattern"
    """Which line it is: `ib-completion`."""
    OP = "op"
    SEQ = "seq"
    NUMEL = "numel"
    FRAME = "frame"
    """Part of `file function` in a stack."""


@dataclass(frozen=True, slots=True)
class Clue:
    """One line of a log that has all of these; of the words of a place, any."""

    words: tuple[tuple[ClueField, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """A problem that others met. A log that shows every clue, and none of the others, looks like theirs: no proof."""

    entry: Entry
    shows: tuple[Clue, ...]
    unless: tuple[Clue, ...]
