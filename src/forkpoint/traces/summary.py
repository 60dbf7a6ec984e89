"""DumpColumns -> record: the summary of one dump; and every op of a dump, for exports."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from forkpoint.model.entries import BLOCK, Block, OpShape, TrackShape, pack_recent, pack_shape
from forkpoint.model.layout import NO_KEY, NOTHING, U64, pack_ints
from forkpoint.model.op import NO_STACK, Ints, Op, OpState, Tokens, mix, numel
from forkpoint.model.records import (
    CHANNEL,
    COUNTED,
    FROM_START,
    GROUP,
    GUESSED_WORLD,
    HAS_STACKS,
    HEAD,
    MAX_THREADS,
    OP,
    PARTIAL,
    PAUSE,
    TIMED,
    ChannelHead,
    GroupHead,
    Head,
    OpTimes,
    Pause,
)
from forkpoint.model.tables import SharedTables
from forkpoint.model.trace import RECENT, RECENT_CALLS, RECENT_MESSAGES
from forkpoint.traces.columns import NO_FRAMES, DumpColumns, GroupStatus
from forkpoint.traces.states import MessageRows, infer_states, leaves_out, message_rows, omitted_markers

STATES = tuple(OpState)
DONE = STATES.index(OpState.COMPLETED)
ALL_TO_ALL = frozenset({"all_to_all", "all_to_all_single", "all_to_allv"})
MAX_DIGITS = 18
"""Longest group name that is taken for a number."""
RECENT_VOLUMES = 256
"""all_to_all slots per rank whose volumes are kept."""
_STATELESS = "holds only some of its entries, without the state of messages"


class DumpRows(Struct, frozen=True):
    """One dump, with what is computed for each of its rows."""

    columns: DumpColumns
    rank: int
    state: Ints
    """Index into STATES, with the states that we infer."""
    tables: SharedTables
    match_tokens: Tokens
    """What each row was."""
    stack_tokens: Tokens
    """Where each row was called from."""
    threads: list[str] = field(default_factory=list[str])
    """Thread names that the record refers to so far."""


def summarise(columns: DumpColumns, rank: int, tables: SharedTables) -> bytes:
    """What later stages need from a dump, as a record. Its size hardly depends on the number of entries."""
    messages = message_rows(columns)
    tokens = _match_tokens(columns, tables), _stack_tokens(columns, tables)
    omitted = omitted_markers(columns, messages)
    dump = DumpRows(columns, rank, infer_states(columns, messages, omitted), tables, *tokens)
    has_holes = leaves_out(columns)  # there is no history to compare
    stateless = omitted.is_unclear
    groups = [*_groups(dump, messages), *_idle_groups(columns, tables)]
    channels = [] if stateless else list(_channels(dump, messages))
    recent = slice(0) if has_holes or not (dump.state == DONE).any() else slice(-RECENT_CALLS, None)
    records = columns.record_id[recent]
    moments = np.concatenate([columns.created_ns, columns.completed_ns])
    moments = moments[moments > 0]
    cut = columns.header.cut or (_STATELESS if stateless else None)
    script = next((s[-1].filename for s in columns.stacks if s and s[-1].name == "<module>"), None)
    stated = _world(columns)
    world = stated or _guess_world(columns)
    flags = {
        FROM_START: _is_from_start(columns),
        HAS_STACKS: bool((columns.stack != NO_FRAMES).any()),
        TIMED: bool((columns.state == 1).any() or (columns.started_ns > 0).any()),
        PARTIAL: has_holes or _has_no_past(columns, dump.state),
        GUESSED_WORLD: stated is None and world is not None,
        COUNTED: bool(columns.header.status),
    }
    head = Head(
        schema=tables.text_key(columns.header.schema),
        comm_lib=tables.text_key(columns.signatures[0].lib if columns.signatures else ""),
        script=NO_KEY if script is None else tables.text_key(script),
        cut=NO_KEY if cut is None else tables.text_key(cut),
        world=_members_key(world, tables),
        first_ns=int(moments.min()) if moments.size else 0,
        last_ns=int(moments.max()) if moments.size else 0,
        entries=len(columns.group),
        groups=len(groups),
        channels=len(channels),
        recents=len(records),
        flags=sum(flag for flag, is_set in flags.items() if is_set),
        threads=len(dump.threads),
        first_recent=int(records[0]) if records.size else 0,
        recent=_recent_key(dump, recent) if records.size else NO_KEY,
    )
    threads = (U64.pack(tables.text_key(name)) for name in dump.threads)
    return b"".join([HEAD.pack(head), *threads, *groups, *channels])


def _recent_key(dump: DumpRows, recent: slice) -> int:
    return dump.tables.recent_key(
        pack_recent(dump.columns.group[recent], dump.match_tokens[recent], dump.stack_tokens[recent])
    )


def _members_key(ranks: tuple[int, ...] | None, tables: SharedTables) -> int:
    return NO_KEY if ranks is None else tables.members_key(ranks)


def _is_from_start(columns: DumpColumns) -> bool:
    return bool(columns.record_id.size and columns.record_id[0] == 0)


def _has_no_past(columns: DumpColumns, state: Ints) -> bool:
    """No op is done although some came before: done ops were left out, or the recorder was off."""
    return not _is_from_start(columns) and not (state == DONE).any()


def _match_tokens(columns: DumpColumns, tables: SharedTables) -> Tokens:
    return np.array([tables.match(s) for s in columns.signatures], dtype=np.uint64)[columns.signature]


def _stack_tokens(columns: DumpColumns, tables: SharedTables) -> Tokens:
    tokens = np.array([tables.stack(s) for s in columns.stacks] + [NO_STACK], dtype=np.uint64)
    return tokens[columns.stack]  # NO_FRAMES = -1 picks the last: NO_STACK


def _world(columns: DumpColumns) -> tuple[int, ...] | None:
    """Only the default group states it, and only once it was used: its communicator is created on first use."""
    default = (g.ranks for g in columns.header.groups if g.desc == "default_pg" or g.name == "0")
    return next(default, None)


def _guess_world(columns: DumpColumns) -> tuple[int, ...] | None:
    """For gloo, whose groups have no names: the group created last, if only the first is in use. A guess, since another group
    may have been created and never used.
    """
    only_first = all(pg_id == 0 for pg_id in columns.header.status) and not columns.pg_id.any()
    return columns.header.unnamed if only_first else None


def _status(columns: DumpColumns, rows: Ints) -> GroupStatus | None:
    return columns.header.status.get(int(columns.pg_id[rows[-1]]))


def _groups(dump: DumpRows, messages: MessageRows) -> Iterator[bytes]:
    """Groups that have entries."""
    columns, tables = dump.columns, dump.tables
    for (name, desc), rows, members in zip(columns.groups, columns.rows_by_group(), columns.members(), strict=True):
        collective = rows[~messages.of_p2p[rows]]
        shape, own = _collective_track(dump, collective) if collective.size else (NO_KEY, b"")
        volumes = _volumes(columns, collective)
        status = _status(columns, rows) if collective.size == rows.size else None  # P2P uses the same counter
        head = GroupHead(
            name=tables.text_key(name),
            desc=tables.text_key(desc),
            members=_members_key(members, tables),
            shape=shape,
            last_enqueued=status.last_enqueued if status else NOTHING,
            last_completed=status.last_completed if status else NOTHING,
            own=len(own),
            volumes=len(volumes),
        )
        yield GROUP.pack(head) + own + volumes


def _idle_groups(columns: DumpColumns, tables: SharedTables) -> Iterator[bytes]:
    """Groups that are declared but have no entries."""
    used = {name for name, _ in columns.groups}  # a split group's description is missing from pg_config
    idle = [g for g in columns.header.groups if g.ranks and g.name not in used]
    counters = _counters_of_idle(columns, [g.name for g in idle])
    for g in idle:
        status = counters.get(g.name)
        counted = (status.last_enqueued, status.last_completed) if status else (NOTHING, NOTHING)
        keys = tables.text_key(g.name), tables.text_key(g.desc), _members_key(g.ranks, tables)
        yield GROUP.pack(GroupHead(*keys, NO_KEY, *counted, own=0, volumes=0))


def _counters_of_idle(columns: DumpColumns, idle: list[str]) -> dict[str, GroupStatus]:
    """Counters of groups without entries, by name. `pg_status` is keyed by the number of the group object in this process,
    `pg_config` by the group's name, which is a number, too. Both are numbered in order of creation. This is checked with
    the groups whose entries show both; if it does not hold, or the counts differ, the result is empty.
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


class _Slots(Struct, frozen=True):
    """Rows of one track. Slot i is rows `first[i]` to `last[i]`; the last one (a marker, if any) has the state."""

    rows: Ints
    seqs: Ints
    match: Tokens
    first: Ints
    last: Ints
    epoch: Ints
    from_start: bool
    recent: int
    """For how many slots times are kept."""


def _collective_track(dump: DumpRows, rows: Ints) -> tuple[int, bytes]:
    """Track of one group: rows with the same seq (coalesced calls and their closing marker) are one slot."""
    columns = dump.columns
    rows = _in_order(columns, rows)
    row_tokens = dump.match_tokens[rows]
    seqs, first, counts = np.unique(columns.collective_seq[rows], return_index=True, return_counts=True)
    last = first + counts - 1
    match = row_tokens[first]
    for slot in np.flatnonzero(counts > 1):
        inside = slice(first[slot], last[slot] + 1)
        match[slot] = _coalesced_token(dump, rows[inside], row_tokens[inside])
    no_epoch = np.zeros(len(seqs), np.int64)
    return _track(dump, _Slots(rows, seqs, match, first, last, no_epoch, from_start=bool(seqs[0] <= 1), recent=RECENT))


def _in_order(columns: DumpColumns, rows: Ints) -> Ints:
    """Sorted by sequence number. Recorders write them so, but a file may be forged."""
    return rows[np.argsort(columns.collective_seq[rows], kind="stable")]


def _coalesced_token(dump: DumpRows, rows: Ints, tokens: Tokens) -> np.uint64:
    signatures = tuple(dump.columns.signatures[i] for i in dump.columns.signature[rows])
    token = mix(tokens, np.arange(len(tokens))).sum(dtype=np.uint64)
    dump.tables.call(int(token), signatures)
    return token


def _channels(dump: DumpRows, messages: MessageRows) -> Iterator[bytes]:
    columns = dump.columns
    from_start = messages.from_start(columns)
    tokens = np.array([dump.tables.message(s) for s in columns.signatures], dtype=np.uint64)
    for (group, source, destination), rows in messages.by_channel(columns, dump.rank).items():
        each = np.arange(len(rows))
        match, epoch = tokens[columns.signature[rows]], columns.collective_seq[rows]
        slots = _Slots(rows, each + 1, match, each, each, epoch, from_start[group], RECENT_MESSAGES)
        shape, own = _track(dump, slots)
        yield CHANNEL.pack(ChannelHead(group, source, destination, shape, len(own))) + own


def _track(dump: DumpRows, slots: _Slots) -> tuple[int, bytes]:
    """The key of its shape, and its own part."""
    rows, seqs, first, last = slots.rows, slots.seqs, slots.first, slots.last
    stack = dump.stack_tokens[rows[first]]
    cuts = np.flatnonzero(np.diff(seqs // BLOCK)) + 1
    parts = zip(*(np.split(a, cuts) for a in (seqs, slots.match, stack, slots.epoch)), strict=True)
    done = np.flatnonzero(dump.state[rows[last]] == DONE)
    frontier = int(done[-1]) + 1 if done.size else 0
    created = dump.columns.created_ns[rows[first]]
    pauses = np.diff(created, prepend=created[:1])
    pause = int(pauses.argmax())
    last_done = frontier - 1 if frontier else None
    first_active = frontier if frontier < len(seqs) else None
    kept = list(dict.fromkeys(slot for slot in (last_done, first_active, len(seqs) - 1) if slot is not None))
    ops = [
        op_of(dump, rows[first[slot] : last[slot] + 1], int(seqs[slot]), int(pauses[slot]) if slot else None)
        for slot in kept
    ]
    shape = TrackShape(
        count=len(seqs),
        first_seq=int(seqs[0]),
        last_seq=int(seqs[-1]),
        from_start=slots.from_start,
        blocks=tuple(dump.tables.block(Block(*(np.ascontiguousarray(a) for a in part))) for part in parts),
        recent_seqs=seqs[-slots.recent :],
        last_done=None if last_done is None else kept.index(last_done),
        first_active=None if first_active is None else kept.index(first_active),
        last=kept.index(len(seqs) - 1),
        ops=tuple(OpShape(o.seq, o.batch, o.signatures, o.state, o.retired, o.timeout_ms, o.stack) for o in ops),
    )
    own = [_pack_times(op, dump.threads) for op in ops]
    own += [PAUSE.pack(Pause(int(seqs[pause]), int(pauses[pause]))), pack_ints(created[-slots.recent :])]
    packed = pack_shape(shape, dump.tables.signature_key, dump.tables.stack)
    return dump.tables.shape_key(packed), b"".join(own)


def _pack_times(op: Op, threads: list[str]) -> bytes:
    thread = op.thread if op.thread in threads or len(threads) < MAX_THREADS else ""
    if thread not in threads:
        threads.append(thread)
    since = NOTHING if op.since_previous_ns is None else op.since_previous_ns
    return OP.pack(OpTimes(op.record_id, op.created_ns, since, op.completed_ns, threads.index(thread)))


def op_of(dump: DumpRows, rows: Ints, seq: int, since_previous_ns: int | None) -> Op:
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


def _volumes(columns: DumpColumns, rows: Ints) -> bytes:
    """Packed sequence numbers, elements sent and elements received of all_to_all calls; empty without any."""
    is_a2a = np.array([s.op in ALL_TO_ALL for s in columns.signatures], dtype=np.bool_)
    rows = rows[is_a2a[columns.signature[rows]]][-RECENT_VOLUMES:] if is_a2a.any() else rows[:0]
    if not rows.size:
        return b""
    sent = np.array([numel(s.input_sizes) for s in columns.signatures], dtype=np.int64)
    received = np.array([numel(s.output_sizes) for s in columns.signatures], dtype=np.int64)
    picked = columns.signature[rows]
    return pack_ints(columns.collective_seq[rows]) + pack_ints(sent[picked]) + pack_ints(received[picked])


class HeldTrack(Struct, frozen=True):
    """One group's collectives, or one channel's messages, in order of issue."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    channel: tuple[int, int] | None
    """(source, destination) as global ranks."""
    counted: bool
    """Its numbers can be compared with other ranks. False for messages whose first one was evicted."""
    ops: tuple[tuple[Op, int], ...]
    """Each with its start time in ns; 0 = not known."""


def held_tracks(columns: DumpColumns, rank: int, newest: int) -> Iterator[HeldTrack]:
    """For exports; the stages work on records. Ops among the rank's `newest` entries, with the same numbers as in its trace."""
    messages = message_rows(columns)
    no_tokens = np.zeros(0, np.uint64)
    dump = DumpRows(
        columns,
        rank,
        infer_states(columns, messages, omitted_markers(columns, messages)),
        SharedTables(),
        no_tokens,
        no_tokens,
    )
    oldest = len(columns.group) - newest
    tracks: dict[tuple[int, tuple[int, int] | None], list[tuple[int, Ints]]] = {}
    members, from_start = columns.members(), messages.from_start(columns)
    for index, group_rows in enumerate(columns.rows_by_group()):
        rows = _in_order(columns, group_rows[~messages.of_p2p[group_rows]])
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
            counted = channel is None or from_start[index]
            yield HeldTrack(*columns.groups[index], members[index], channel, counted, ops)
