"""Which rows of a dump are messages, and how far each op really got."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from forkpoint.model.op import OpState
from forkpoint.traces.columns import NO_FRAMES, DumpColumns, Ints


class MessageRows(Struct, frozen=True):
    of_p2p: NDArray[np.bool_]
    """Rows that belong to P2P traffic: sends, receives and the markers that close a batch of them."""
    is_message: NDArray[np.bool_]
    """Rows that are a send or a receive with a known peer."""

    def by_channel(self, columns: DumpColumns, rank: int) -> dict[tuple[int, int, int], Ints]:
        """(group index, source, destination) -> rows in order of issue. Source and destination are global ranks."""
        channels: dict[tuple[int, int, int], list[int]] = {}
        members = columns.members()
        for row in np.flatnonzero(self.is_message):
            group = int(columns.group[row])
            signature = columns.signatures[int(columns.signature[row])]
            ranks = members[group]
            assert signature.peers is not None  # is_message says so
            source, destination = signature.peers
            if ranks is not None and max(source, destination) < len(ranks):
                source, destination = ranks[source], ranks[destination]
            if rank in (source, destination):
                channels.setdefault((group, source, destination), []).append(int(row))
        return {key: np.array(rows, dtype=np.int64) for key, rows in channels.items()}

    def from_start(self, columns: DumpColumns) -> dict[int, bool]:
        """For each group with messages: whether the ring buffer still holds the first one, so that they can be numbered."""
        rows = np.flatnonzero(self.is_message)
        groups, first = np.unique(columns.group[rows], return_index=True)
        # p2p_seq 1 alone is not enough: earlier messages of the same batch may have been evicted.
        is_first = (columns.p2p_seq[rows[first]] == 1) & (rows[first] > 0)
        whole = bool((columns.record_id[:1] == 0).any())
        if leaves_out(columns):
            return dict.fromkeys(groups.tolist(), False)
        return dict(zip(groups.tolist(), (is_first | whole).tolist(), strict=True))


def message_rows(columns: DumpColumns) -> MessageRows:
    has_peer = np.array([s.peers is not None for s in columns.signatures], dtype=np.bool_)
    is_marker = np.array([s.is_marker for s in columns.signatures], dtype=np.bool_)
    of_p2p = columns.is_p2p.copy()
    if not columns.signatures:
        return MessageRows(of_p2p, of_p2p)
    is_message = has_peer[columns.signature]
    of_p2p |= is_message
    _add_batch_markers(columns, of_p2p, is_marker[columns.signature])
    return MessageRows(of_p2p, is_message)


def batch_markers(columns: DumpColumns, rows: MessageRows) -> dict[int, int]:
    """Row of a message in a batch -> row of the marker that holds the batch's state."""
    markers: dict[int, int] = {}
    p2p_seq: list[int] = columns.p2p_seq.tolist()
    for group in columns.rows_by_group():
        batch: list[int] = []
        for row in group[rows.of_p2p[group]].tolist():
            same = bool(batch) and p2p_seq[batch[-1]] == p2p_seq[row]
            if rows.is_message[row]:
                batch = batch if same else []
                batch.append(row)
            else:
                if same:
                    markers.update((message, row) for message in batch)
                batch = []
    return markers


def _add_batch_markers(columns: DumpColumns, of_p2p: NDArray[np.bool_], is_marker: NDArray[np.bool_]) -> None:
    """The marker of a P2P batch has is_p2p False; it is recognised by the message with the same p2p_seq just before it."""
    for rows in columns.rows_by_group():
        before, after = rows[:-1], rows[1:]
        closes = is_marker[after] & of_p2p[before] & (columns.p2p_seq[before] == columns.p2p_seq[after])
        of_p2p[after[closes]] = True


_BATCH = "batch_isend_irecv"


class OmittedMarkers(Struct, frozen=True):
    """Messages of batches whose marker is missing from a dump without finished ops."""

    done: tuple[int, ...] = ()
    """Rows of messages whose batch is done: its marker was omitted, while messages themselves are never removed from the list."""
    is_unclear: bool = False
    """For some of them it is not known whether their batch is done, or was just being assembled."""


def leaves_out(columns: DumpColumns) -> bool:
    """The recorder numbers its entries without gaps. Gaps mean a selection, such as only the active ops."""
    return bool((np.diff(columns.record_id) != 1).any())


def omitted_markers(columns: DumpColumns, messages: MessageRows) -> OmittedMarkers:
    """A single message is in such a dump only while it is pending. So this concerns groups in which the program sends in batches,
    as markers, messages with equal numbers or stacks show; if nothing shows it, the answer is unclear.
    """
    if not leaves_out(columns) or not messages.is_message.any():
        return OmittedMarkers()
    marked = batch_markers(columns, messages)
    done: list[int] = []
    unclear = False
    for rows in columns.rows_by_group():
        own = rows[messages.is_message[rows]]
        alone = [row for row in own.tolist() if row not in marked]
        if len(alone) == own.size and np.unique(columns.p2p_seq[own]).size == own.size:
            told = [_calls_batch(columns, row) for row in alone]
            if True not in told:
                unclear |= None in told
                continue
        completed = _messages_completed(columns, messages, rows)
        last = int(columns.p2p_seq[own[-1]]) if own.size and own[-1] == len(columns.group) - 1 else None
        for row in alone:
            seq = int(columns.p2p_seq[row])
            if seq <= completed if completed is not None else seq != last:
                done.append(row)
            unclear |= completed is None and seq == last
    return OmittedMarkers(tuple(done), unclear)


def _calls_batch(columns: DumpColumns, row: int) -> bool | None:
    """None: the stack was not recorded."""
    stack = int(columns.stack[row])
    return None if stack == NO_FRAMES else any(frame.name == _BATCH for frame in columns.stacks[stack])


def _messages_completed(columns: DumpColumns, messages: MessageRows, rows: Ints) -> int | None:
    """The group's counter of finished batches; None if the group has collectives, too, which use the same counter."""
    status = columns.header.status.get(int(columns.pg_id[rows[-1]]))
    only_messages = bool(messages.of_p2p[rows].all()) and not columns.collective_seq[rows].any()
    return status.last_completed if status is not None and only_messages else None


# ---------------------------------------------------------------------------------------------------------------------
# How far each op really got. PyTorch's `state` needs these corrections.

_STATES = tuple(OpState)
SCHEDULED, STARTED, COMPLETED, ENTERING, ABORTED = (_STATES.index(s) for s in OpState)
NS_PER_MS = 1_000_000


def infer_states(columns: DumpColumns, messages: MessageRows, omitted: OmittedMarkers) -> Ints:
    """Per row, an index into tuple(OpState)."""
    state = columns.state.astype(np.int64)
    gloo = np.array([s.lib == "gloo" for s in columns.signatures], dtype=np.bool_)
    if gloo.any():  # gloo has no events: its state never leaves `scheduled`
        is_gloo = gloo[columns.signature]
        state[is_gloo] = np.where(columns.retired[is_gloo], COMPLETED, SCHEDULED)
    _mark_aborted(columns, state)
    for rows in columns.rows_by_group():
        _mark_entering(columns, state, rows)
    for row, marker in batch_markers(columns, messages).items():
        state[row] = state[marker]  # messages of a batch have no events of their own
    state[list(omitted.done)] = COMPLETED
    return state


def _mark_aborted(columns: DumpColumns, state: Ints) -> None:
    """Tearing down a communicator ends its kernels: the dump then says `completed`, but after the timeout."""
    took = columns.completed_ns - columns.created_ns
    late = (columns.completed_ns > 0) & (columns.timeout_ms > 0) & (took > columns.timeout_ms * NS_PER_MS)
    state[(state == COMPLETED) & late & ~columns.retired] = ABORTED


def _mark_entering(columns: DumpColumns, state: Ints, rows: Ints) -> None:
    """The newest op of a group reads `completed` while its rank is still blocked inside the enqueue: its event was
    never recorded, so the query says "done". The group's counter still shows the op before it.
    """
    status = columns.header.status.get(int(columns.pg_id[rows[-1]]))
    newest = int(rows[-1])
    if status is None or columns.retired[newest] or state[newest] not in (COMPLETED, ABORTED):
        return
    if columns.signatures[int(columns.signature[newest])].lib == "gloo":
        return
    before = _counter(columns, int(rows[-2])) if len(rows) > 1 else max(_counter(columns, newest) - 1, 0)
    if max(status.last_enqueued, 0) == before != _counter(columns, newest):
        state[newest] = ENTERING


def _counter(columns: DumpColumns, row: int) -> int:
    """The number that pg_status would show for this row."""
    return int(columns.p2p_seq[row] if columns.is_p2p[row] else columns.collective_seq[row])
