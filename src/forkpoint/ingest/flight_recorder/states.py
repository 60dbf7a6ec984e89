"""How far each op really came. Upstream's `state` is right only with these rules (facts: the state machine)."""

import numpy as np

from forkpoint.ingest.flight_recorder.channels import MessageRows, batch_markers
from forkpoint.ingest.flight_recorder.columns import DumpColumns, Ints
from forkpoint.model.op import OpState

_STATES = tuple(OpState)
SCHEDULED, STARTED, COMPLETED, ENTERING, ABORTED = (_STATES.index(s) for s in OpState)
NS_PER_MS = 1_000_000


def infer_states(columns: DumpColumns, messages: MessageRows) -> Ints:
    """Per row, an index into tuple(OpState)."""
    state = columns.state.astype(np.int64)
    gloo = np.array([s.lib == "gloo" for s in columns.signatures], dtype=np.bool_)
    if gloo.any():  # gloo has no events: its state never leaves `scheduled`
        is_gloo = gloo[columns.signature]
        state[is_gloo] = np.where(columns.retired[is_gloo], COMPLETED, SCHEDULED)
    _mark_aborted(columns, state)
    for index in range(len(columns.groups)):
        _mark_entering(columns, state, np.flatnonzero(columns.group == index))
    for row, marker in batch_markers(columns, messages).items():
        state[row] = state[marker]  # messages of a batch have no events of their own
    return state


def _mark_aborted(columns: DumpColumns, state: Ints) -> None:
    """Tearing a communicator down ends its kernels: they then read `completed`, but past their timeout."""
    took = columns.completed_ns - columns.created_ns
    late = (columns.completed_ns > 0) & (columns.timeout_ms > 0) & (took > columns.timeout_ms * NS_PER_MS)
    state[(state == COMPLETED) & late & ~columns.retired] = ABORTED


def _mark_entering(columns: DumpColumns, state: Ints, rows: Ints) -> None:
    """The newest op of a group reads `completed` while its rank is still blocked inside the enqueue: its event was
    never recorded, so the query says "done". The group's counter still names the op before it.
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
    """The number by which pg_status would name this row."""
    return int(columns.p2p_seq[row] if columns.is_p2p[row] else columns.collective_seq[row])
