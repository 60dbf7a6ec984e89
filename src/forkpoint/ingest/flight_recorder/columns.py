"""One dump, decoded: what every decoder (ours, or a compiled one) hands to the next step."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.op import Signature, Stack

Ints = NDArray[np.int64]
NO_FRAMES = -1
"""In `stack`: the entry has no `frames` key at all (an empty list of frames is a stack of its own)."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group as the dump's `pg_config` declares it."""

    name: str
    desc: str
    ranks: tuple[int, ...] | None
    """None where the dump does not say (gloo writes an empty list)."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group's counters in `pg_status`. -1 = none; collectives and P2P share them."""

    last_enqueued: int
    last_started: int
    last_completed: int


@dataclass(frozen=True, slots=True)
class DumpHeader:
    schema: str
    """`version` as written ("2.10"); "" for torch 2.2's bare list."""
    comm_lib_version: str | None
    groups: tuple[GroupConfig, ...]
    status: dict[int, GroupStatus]
    """By pg_id: another number than the group's name."""
    rank: int | None
    """Only re-written dumps say their rank."""
    cut: str | None
    """Why the entries end early (the file was cut); None for a whole file."""
    unnamed: tuple[int, ...] | None = None
    """Members of the group that was made last, where groups have no names (gloo registers them before they have one)."""


@dataclass(frozen=True, slots=True)
class DumpColumns:
    """A row per entry, oldest first. Tables hold each distinct value once; rows hold indexes into them."""

    header: DumpHeader
    groups: tuple[tuple[str, str], ...]
    """Distinct (name, desc) of the entries."""
    signatures: tuple[Signature, ...]
    stacks: tuple[Stack, ...]
    threads: tuple[str, ...]

    group: Ints
    signature: Ints
    stack: Ints
    """Index into stacks, or NO_FRAMES."""
    thread: Ints
    pg_id: Ints
    record_id: Ints
    collective_seq: Ints
    p2p_seq: Ints
    op_id: Ints
    is_p2p: NDArray[np.bool_]
    state: NDArray[np.uint8]
    """0 scheduled, 1 started, 2 completed."""
    retired: NDArray[np.bool_]
    created_ns: Ints
    started_ns: Ints
    """0 = not known, as for completed_ns and timeout_ms."""
    completed_ns: Ints
    timeout_ms: Ints

    def members(self, group: int) -> tuple[int, ...] | None:
        """Global ranks of a group in group-rank order; None where the dump does not say."""
        name, desc = self.groups[group]
        same = [g for g in self.header.groups if g.name == name]
        exact = [g for g in same if g.desc == desc] or same
        return exact[0].ranks if exact else None
