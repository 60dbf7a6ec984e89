"""DumpColumns -> every op that a dump holds, one by one. Only exports need them: the stages work on summaries."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forkpoint.ingest.flight_recorder.channels import message_rows
from forkpoint.ingest.flight_recorder.columns import DumpColumns
from forkpoint.ingest.flight_recorder.states import infer_states
from forkpoint.ingest.flight_recorder.summary import DumpRows, op_of
from forkpoint.model.op import Op
from forkpoint.model.tables import SharedTables
from forkpoint.model.tokens import Ints


@dataclass(frozen=True, slots=True)
class HeldTrack:
    """One group's collectives, or one channel's messages, in the order of issue."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    channel: tuple[int, int] | None
    """(source, destination) as global ranks."""
    counted: bool
    """Its numbers are those of the other ranks. Not so for messages whose first has been evicted."""
    ops: tuple[tuple[Op, int], ...]
    """Each with when it started: 0 = not known."""


def held_tracks(columns: DumpColumns, rank: int, newest: int) -> Iterator[HeldTrack]:
    """Ops among the rank's `newest` entries. They are numbered as in its trace, whatever is left out."""
    messages = message_rows(columns)
    no_tokens = np.zeros(0, np.uint64)
    dump = DumpRows(columns, rank, infer_states(columns, messages), SharedTables(), no_tokens, no_tokens)
    oldest = len(columns.group) - newest
    tracks: dict[tuple[int, tuple[int, int] | None], list[tuple[int, Ints]]] = {}
    for index in range(len(columns.groups)):
        rows = np.flatnonzero((columns.group == index) & ~messages.of_p2p)
        seqs, first = np.unique(columns.collective_seq[rows], return_index=True)
        parts = np.split(rows, first[1:])
        tracks[index, None] = [(int(seq), part) for seq, part in zip(seqs, parts, strict=False)]
    for (index, source, destination), rows in messages.by_channel(columns, rank).items():
        tracks[index, (source, destination)] = [
            (number, rows[number - 1 : number]) for number in range(1, len(rows) + 1)
        ]
    for (index, channel), slots in tracks.items():
        kept = [(seq, rows) for seq, rows in slots if rows[0] >= oldest]
        ops = tuple((op_of(dump, rows, seq, None), int(columns.started_ns[rows[0]])) for seq, rows in kept)
        if ops:
            counted = channel is None or messages.from_start(columns, index)
            yield HeldTrack(*columns.groups[index], columns.members(index), channel, counted, ops)
