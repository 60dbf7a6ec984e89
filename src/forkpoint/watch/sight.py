"""The result of one look."""

from dataclasses import dataclass
from enum import StrEnum

from forkpoint.model.verdict import Verdict


class WatchState(StrEnum):
    RUNNING = "running"
    """Progress was seen since the look before."""
    WAITING = "waiting"
    """No progress seen, and nothing that would be an alarm: ranks may compute, load or save."""
    BLIND = "blind"
    """Nothing can be read."""
    FOUND = "found"
    """There is a verdict that time cannot undo, or nothing moved for too long."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far the ranks of a group have come. A rank that is behind is not a finding: they were asked at different moments."""

    group: str
    ranks: int
    lowest: int
    highest: int
    """Seq of the newest op, of the rank that is least far and of the one that is farthest."""
    behind: int
    """How many have not issued the highest."""


@dataclass(frozen=True, slots=True)
class WatchNote:
    """What a source could not get."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Sight:
    at: str
    """UTC, `2026-11-15T01:18:27Z`."""
    state: WatchState
    why: str
    """One sentence."""
    ranks_expected: int
    """0: not known."""
    ranks_answering: int
    still_s: float
    """For how long no rank that can be read has moved, as far as it was watched."""
    groups: tuple[GroupProgress, ...] = ()
    notes: tuple[WatchNote, ...] = ()
    verdict: Verdict | None = None
    evidence: str | None = None
    """The folder that the verdict was read from."""
    is_alarm: bool = False
    """The first sight of this incident: the one to tell others about."""
