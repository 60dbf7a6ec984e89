"""The data that a page draws: small columns per rank and per group, computed once, after the verdict."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Shorts = NDArray[np.int16]
Words = NDArray[np.int32]
Counts = NDArray[np.uint32]
Longs = NDArray[np.int64]

NO_OP = 255
"""In `HeatMap.op`: no member recorded the operation of this column."""


class RankState(IntEnum):
    """How a rank's tile is coloured. Neutral, like roles: `suspect` is a separate column."""

    SILENT = 0
    """No dump, and nothing else shows where it was."""
    WAITING = 1
    AHEAD = 2
    BEHIND = 3
    ELSEWHERE = 4
    AGREED = 5
    """It has no pending op."""
    LOST = 6
    """Its process is known to have ended."""


class CellState(IntEnum):
    """One op of one rank."""

    UNKNOWN = 0
    """Evicted from the ring buffer, or no dump shows it."""
    COMPLETED = 1
    STARTED = 2
    ISSUED = 3
    NOT_REACHED = 4
    DIFFERS = 5
    """Its metadata differ from the majority's in this slot. Without a majority, all ops get this state."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the mesh."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class OpName:
    name: str
    letters: str
    """`AR`, `AG`: short enough for a cell."""


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """Members x slots, as runs. Members that did the same share a row."""

    row_of: Words
    """Per member."""
    row_start: Words
    """Row r is the runs row_start[r] up to row_start[r + 1]."""
    run_length: Counts
    run_code: Bytes
    """CellState."""
    op: Bytes
    """Per column, what most members called: index into Picture.ops, or NO_OP."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupPicture:
    """A group's collectives, or one channel's messages."""

    name: str
    desc: str
    is_channel: bool
    is_divergence: bool
    ranks: Words
    """The members; of a channel, source and destination."""
    first_seq: int
    last_seq: int
    """Range of the heat map's columns. last < first: nothing was recorded."""
    completed: Longs
    issued: Longs
    """Last seq per member; -1 where none is known."""
    heat: HeatMap


@dataclass(frozen=True, slots=True)
class LaneCell:
    seq: int
    op: str | None
    """None: these ranks have no op here."""
    letters: str
    sizes: str
    state: CellState
    odd: bool
    note: str


@dataclass(frozen=True, slots=True)
class Lane:
    """What one cohort did around the divergence, shown for one of its ranks."""

    cohort: int
    role: str
    ranks: tuple[int, ...]
    suspect: bool
    rank: int
    cells: tuple[LaneCell, ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """Lines of the user's source, shown beside a site or a frame."""

    file: str
    first: int
    lines: tuple[str, ...]
    marked: int
    condition: int | None
    """The line of the branch condition, if it is among these lines."""
    frame: str | None
    """`/srv/train.py:40`, as stacks name it."""
    site: int | None
    """Index into the verdict's sites."""
    editor: str | None = None
    """Opens the marked line in an editor on this machine."""
    forge: str | None = None
    """The address of the line on the site that hosts the code (GitHub, GitLab), at the commit that is checked out."""


@dataclass(frozen=True, slots=True)
class LastArrivals:
    """Which ranks arrived last at the ops that one group issued from one call site."""

    group: str
    desc: str
    host: str | None
    """None: all members were compared. Otherwise only the members on this host."""
    compared: int
    """How many ranks."""
    site: str | None
    met: int
    """How many ops they all arrived at."""
    last: tuple[tuple[int, int, float], ...]
    """(rank, how often it was last, median delay behind the others in ms), most often first."""
    odd: bool
    """The first of them is last more often than chance explains."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    ranks: Words
    state: Bytes
    """RankState."""
    suspect: Bytes
    cohort: Shorts
    """Index into the divergence's cohorts; -1: none."""
    hosts: tuple[str, ...]
    host: Words
    """Index into `hosts`; -1: not known."""
    local: Shorts
    """GPU or local rank; -1: not known."""
    axes: tuple[Axis, ...]
    """Outermost first."""
    position: Words
    """Ranks x axes."""
    ops: tuple[OpName, ...]
    groups: tuple[GroupPicture, ...]
    """The group of the divergence first."""
    groups_left_out: int
    lanes: tuple[Lane, ...]
    embeds_source: bool = False
    """The reader asked for lines of source in the page: quotes, and the patches of probes and fixes."""
    quotes: tuple[Quote, ...] = ()
    arrivals: tuple[LastArrivals, ...] = ()
