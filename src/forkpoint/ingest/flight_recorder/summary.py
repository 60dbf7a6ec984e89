"""DumpColumns -> RankTrace: what is kept of one dump. All rows of a dump are looked at here, and nowhere later."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from forkpoint.ingest.flight_recorder.channels import MessageRows, message_rows
from forkpoint.ingest.flight_recorder.columns import NO_FRAMES, DumpColumns, GroupStatus
from forkpoint.ingest.flight_recorder.states import infer_states
from forkpoint.model.op import Op, OpState
from forkpoint.model.tokens import NO_STACK, mix, numel
from forkpoint.model.trace import (
    BLOCK,
    RECENT,
    RECENT_CALLS,
    RECENT_MESSAGES,
    Block,
    ChannelTrace,
    Ints,
    ReadGroup,
    ReadTrace,
    ReadTrack,
    Tokens,
    Volumes,
)
from forkpoint.packed.tables import SharedTables

STATES = tuple(OpState)
DONE = STATES.index(OpState.COMPLETED)
ALL_TO_ALL = frozenset({"all_to_all", "all_to_all_single", "all_to_allv"})
MAX_DIGITS = 18
"""Of a group's name that is a number."""
RECENT_VOLUMES = 256
"""all_to_all slots whose volumes are kept per rank: bounded, as everything else here."""


@dataclass(frozen=True, slots=True)
class _Dump:
    """One dump on its way through this module."""

    columns: DumpColumns
    rank: int
    state: Ints
    """Index into STATES, with what we infer."""
    tables: SharedTables
    stack_tokens: Tokens


def summarise(columns: DumpColumns, rank: int, file: str, tables: SharedTables) -> ReadTrace:
    """Keep of a dump what the stages need, in memory that does not depend on its number of entries."""
    messages = message_rows(columns)
    dump = _Dump(columns, rank, infer_states(columns, messages), tables, _row_stack_tokens(columns, tables))
    moments = np.concatenate([columns.created_ns, columns.completed_ns])
    moments = moments[moments > 0]
    # The recorder numbers its entries without holes. With holes this is a choice of them, such as the active ops only
    # (NVIDIA's resiliency extension): it has no past to compare with, and messages have lost the markers of their state.
    has_holes = bool((np.diff(columns.record_id) != 1).any())
    stateless = has_holes and bool(messages.is_message.any())
    recent = slice(0) if has_holes or not (dump.state == DONE).any() else slice(-RECENT_CALLS, None)
    matches = _matches(dump)[recent]
    groups = _groups(dump, messages)
    return ReadTrace(
        rank=rank,
        file=file,
        schema=columns.header.schema,
        comm_lib=columns.signatures[0].lib if columns.signatures else "",
        entries=len(columns.group),
        cut=columns.header.cut
        or ("holds only some of its entries, without the state of messages" if stateless else None),
        world=_world(columns) or _guess_world(columns),
        world_is_guess=_world(columns) is None and _guess_world(columns) is not None,
        groups=groups,
        channels=() if stateless else _channels(dump, messages, groups),
        from_start=bool(columns.record_id.size and columns.record_id[0] == 0),
        first_ns=int(moments.min()) if moments.size else 0,
        last_ns=int(moments.max()) if moments.size else 0,
        script=next((s[-1].filename for s in columns.stacks if s and s[-1].name == "<module>"), None),
        has_stacks=bool((columns.stack != NO_FRAMES).any()),
        timed=bool((columns.state == 1).any() or (columns.started_ns > 0).any()),
        is_partial=has_holes or _has_no_past(columns, dump.state),
        has_counters=bool(columns.header.status),
        recent_records=columns.record_id[recent].copy(),
        recent_groups=columns.group[recent].copy(),
        recent_matches=matches,
        recent_ops=mix(matches, columns.group[recent]),
        recent_stacks=dump.stack_tokens[recent].copy(),
    )


def _has_no_past(columns: DumpColumns, state: Ints) -> bool:
    """Nothing that is done, though something came before: what is done was left out, or the recorder was off."""
    from_start = bool(columns.record_id.size and columns.record_id[0] == 0)
    return not from_start and not (state == DONE).any()


def _matches(dump: _Dump) -> Tokens:
    """What each row was."""
    columns = dump.columns
    return np.array([dump.tables.match(s) for s in columns.signatures], dtype=np.uint64)[columns.signature]


def _world(columns: DumpColumns) -> tuple[int, ...] | None:
    """Only the default group says it, and only once it was used: a communicator is made on first use."""
    default = (g.ranks for g in columns.header.groups if g.desc == "default_pg" or g.name == "0")
    return next(default, None)


def _guess_world(columns: DumpColumns) -> tuple[int, ...] | None:
    """With gloo, whose groups have no names: the group made last, where the first is the only one in use. Another may have
    been made and never used.
    """
    only_first = all(pg_id == 0 for pg_id in columns.header.status) and not columns.pg_id.any()
    return columns.header.unnamed if only_first else None


def _row_stack_tokens(columns: DumpColumns, tables: SharedTables) -> Tokens:
    tokens = np.array([tables.stack(s) for s in columns.stacks] + [NO_STACK], dtype=np.uint64)
    return tokens[columns.stack]  # NO_FRAMES = -1 picks the last: NO_STACK


def _status(columns: DumpColumns, rows: Ints) -> GroupStatus | None:
    return columns.header.status.get(int(columns.pg_id[rows[-1]]))


def _groups(dump: _Dump, messages: MessageRows) -> tuple[ReadGroup, ...]:
    columns = dump.columns
    found: list[ReadGroup] = []
    for index, (name, desc) in enumerate(columns.groups):
        rows = np.flatnonzero(columns.group == index)
        collective = rows[~messages.of_p2p[rows]]
        status = _status(columns, rows)
        shared_counter = collective.size < rows.size
        found.append(
            ReadGroup(
                name=name,
                desc=desc,
                members=columns.members(index),
                collectives=_collective_track(dump, collective) if collective.size else None,
                volumes=_volumes(columns, collective),
                last_enqueued=status.last_enqueued if status and not shared_counter else None,
                last_completed=status.last_completed if status and not shared_counter else None,
            )
        )
    used = {g.name for g in found}  # a split group's description is missing from pg_config
    idle = [g for g in columns.header.groups if g.ranks and g.name not in used]
    counters = _counters_of_idle(columns, [g.name for g in idle])
    for g in idle:
        status = counters.get(g.name)
        enqueued, completed = (status.last_enqueued, status.last_completed) if status else (None, None)
        found.append(ReadGroup(g.name, g.desc, g.ranks, last_enqueued=enqueued, last_completed=completed))
    return tuple(found)


def _counters_of_idle(columns: DumpColumns, idle: list[str]) -> dict[str, GroupStatus]:
    """Counters of groups without entries, by name. `pg_status` is keyed by the number of the group's object in this process,
    `pg_config` by its name, which is a number too: both count in the order of creation. That is checked on the groups of
    which entries give both; where it does not hold, or there are more of one than of the other, nothing is told.
    """
    known = {
        int(pg_id): columns.groups[int(group)][0] for pg_id, group in zip(columns.pg_id, columns.group, strict=True)
    }
    rest = sorted(columns.header.status.keys() - known.keys())
    if not rest or len(rest) != len(idle) or not all(map(is_number, (*idle, *known.values()))):
        return {}
    paired = {**known, **dict(zip(rest, sorted(idle, key=int), strict=True))}
    in_order = [int(paired[pg_id]) for pg_id in sorted(paired)]
    if any(first >= second for first, second in pairwise(in_order)):
        return {}
    return {paired[pg_id]: columns.header.status[pg_id] for pg_id in rest}


def is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS


@dataclass(frozen=True, slots=True)
class _Slots:
    """Rows of a dump in one order. `first` and `last` give each slot's rows; the last (a marker, if any) has the state."""

    rows: Ints
    seqs: Ints
    match: Tokens
    first: Ints
    last: Ints
    epoch: Ints
    from_start: bool
    recent: int
    """Of how many slots times are kept."""


def _collective_track(dump: _Dump, rows: Ints) -> ReadTrack:
    """Slots of one group: rows of one seq (a coalesced group and its closing marker) are one slot."""
    columns = dump.columns
    row_tokens = _matches(dump)[rows]
    seqs, first, counts = np.unique(columns.collective_seq[rows], return_index=True, return_counts=True)
    last = first + counts - 1
    match = row_tokens[first]
    for slot in np.flatnonzero(counts > 1):
        inside = slice(first[slot], last[slot] + 1)
        match[slot] = _coalesced_token(dump, rows[inside], row_tokens[inside])
    no_epoch = np.zeros(len(seqs), np.int64)
    return _track(dump, _Slots(rows, seqs, match, first, last, no_epoch, from_start=bool(seqs[0] <= 1), recent=RECENT))


def _coalesced_token(dump: _Dump, rows: Ints, tokens: Tokens) -> np.uint64:
    signatures = tuple(dump.columns.signatures[i] for i in dump.columns.signature[rows])
    token = mix(tokens, np.arange(len(tokens))).sum(dtype=np.uint64)
    dump.tables.call(int(token), signatures)
    return token


def _channels(dump: _Dump, messages: MessageRows, groups: Sequence[ReadGroup]) -> tuple[ChannelTrace, ...]:
    columns = dump.columns
    tokens = np.array([dump.tables.message(s) for s in columns.signatures], dtype=np.uint64)
    found: list[ChannelTrace] = []
    for (group, source, destination), rows in messages.by_channel(columns, dump.rank).items():
        each = np.arange(len(rows))
        match, epoch = tokens[columns.signature[rows]], columns.collective_seq[rows]
        slots = _Slots(rows, each + 1, match, each, each, epoch, messages.from_start(columns, group), RECENT_MESSAGES)
        found.append(ChannelTrace(groups[group], source, destination, _track(dump, slots)))
    return tuple(found)


def _track(dump: _Dump, slots: _Slots) -> ReadTrack:
    rows, seqs, first, last = slots.rows, slots.seqs, slots.first, slots.last
    stack = dump.stack_tokens[rows[first]]
    cuts = np.flatnonzero(np.diff(seqs // BLOCK)) + 1
    parts = zip(*(np.split(a, cuts) for a in (seqs, slots.match, stack, slots.epoch)), strict=True)
    done = np.flatnonzero(dump.state[rows[last]] == DONE)
    frontier = int(done[-1]) + 1 if done.size else 0
    created = dump.columns.created_ns[rows[first]]
    pauses = np.diff(created, prepend=created[:1])
    pause = int(pauses.argmax())

    def op(slot: int) -> Op:
        since = int(pauses[slot]) if slot else None
        return _op(dump, rows[first[slot] : last[slot] + 1], int(seqs[slot]), since)

    return ReadTrack(
        count=len(seqs),
        first_seq=int(seqs[0]),
        last_seq=int(seqs[-1]),
        from_start=slots.from_start,
        blocks=tuple(dump.tables.block(Block(*(np.ascontiguousarray(a) for a in part))) for part in parts),
        last_done=op(frontier - 1) if frontier else None,
        first_active=op(frontier) if frontier < len(seqs) else None,
        last=op(len(seqs) - 1),
        recent_seqs=seqs[-slots.recent :].copy(),
        recent_created_ns=created[-slots.recent :].copy(),
        longest_pause_seq=int(seqs[pause]),
        longest_pause_ns=int(pauses[pause]),
    )


def _op(dump: _Dump, rows: Ints, seq: int, since_previous_ns: int | None) -> Op:
    columns = dump.columns
    first, last = int(rows[0]), int(rows[-1])
    stack = int(columns.stack[first])
    signatures = tuple(columns.signatures[i] for i in columns.signature[rows])
    calls = tuple(s for s in signatures if not s.is_marker) or signatures
    return Op(
        rank=dump.rank,
        record_id=int(columns.record_id[first]),
        seq=seq,
        batch=int(columns.p2p_seq[first]) if columns.is_p2p[first] else 0,
        signatures=calls,
        state=STATES[int(dump.state[last])],
        retired=bool(columns.retired[last]),
        created_ns=int(columns.created_ns[first]),
        since_previous_ns=since_previous_ns,
        completed_ns=int(columns.completed_ns[last]),
        timeout_ms=int(columns.timeout_ms[last]),
        stack=None if stack == NO_FRAMES else columns.stacks[stack],
        thread=columns.threads[int(columns.thread[first])],
    )


def _volumes(columns: DumpColumns, rows: Ints) -> Volumes | None:
    is_a2a = np.array([s.op in ALL_TO_ALL for s in columns.signatures], dtype=np.bool_)
    if not is_a2a.any():
        return None
    rows = rows[is_a2a[columns.signature[rows]]][-RECENT_VOLUMES:]
    if not rows.size:
        return None
    sent = np.array([numel(s.input_sizes) for s in columns.signatures], dtype=np.int64)
    received = np.array([numel(s.output_sizes) for s in columns.signatures], dtype=np.int64)
    picked = columns.signature[rows]
    return Volumes(columns.collective_seq[rows], sent[picked], received[picked])
