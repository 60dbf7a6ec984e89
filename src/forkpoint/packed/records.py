"""RankTrace -> bytes. What ranks share goes into the tables; a record holds keys and what only its rank knows."""

import struct

from forkpoint.model.op import Op
from forkpoint.model.trace import ChannelTrace, GroupTrace, ReadTrace, Track, Volumes
from forkpoint.packed.entries import OpShape, TrackShape, pack_recent, pack_shape
from forkpoint.packed.layout import NOTHING, U64, pack_ints, struct_of
from forkpoint.packed.tables import SharedTables

NO_KEY = 0
"""In place of a key: there is none."""
HEAD_FIELDS = (
    ("schema", "<u8"),
    ("comm_lib", "<u8"),
    ("script", "<u8"),
    ("cut", "<u8"),
    ("world", "<u8"),
    ("first_ns", "<i8"),
    ("last_ns", "<i8"),
    ("entries", "<u4"),
    ("groups", "<u4"),
    ("channels", "<u4"),
    ("recents", "<u4"),
    ("flags", "u1"),
    ("threads", "u1"),
    ("first_recent", "<i8"),
    ("recent", "<u8"),
)
HEAD = struct_of(HEAD_FIELDS)
GROUP = struct.Struct("<4Qqq2I")
CHANNEL = struct.Struct("<IqqQI")
OWN_OP = struct.Struct("<4qB")
PAUSE = struct.Struct("<qq")
FROM_START, HAS_STACKS, TIMED, PARTIAL, GUESSED_WORLD, COUNTED = 1, 2, 4, 8, 16, 32
MAX_THREADS = 254
"""Names of threads that a record can hold: trainers have a handful. Those of a file that has more are not kept."""


def pack(trace: ReadTrace, tables: SharedTables) -> bytes:
    packer = _Packer(tables)
    groups = [packer.group(group) for group in trace.groups]
    places = {id(group): index for index, group in enumerate(trace.groups)}
    channels = [packer.channel(channel, places[id(channel.group)]) for channel in trace.channels]
    recent = pack_recent(trace.recent_groups, trace.recent_matches, trace.recent_stacks)
    head = HEAD.pack(
        tables.text_key(trace.schema),
        tables.text_key(trace.comm_lib),
        NO_KEY if trace.script is None else tables.text_key(trace.script),
        NO_KEY if trace.cut is None else tables.text_key(trace.cut),
        packer.members(trace.world),
        trace.first_ns,
        trace.last_ns,
        trace.entries,
        len(groups),
        len(channels),
        trace.recent_records.size,
        FROM_START * trace.from_start
        | HAS_STACKS * trace.has_stacks
        | TIMED * trace.timed
        | PARTIAL * trace.is_partial
        | GUESSED_WORLD * trace.world_is_guess
        | COUNTED * trace.has_counters,
        len(packer.threads),
        int(trace.recent_records[0]) if trace.recent_records.size else 0,
        tables.recent_key(recent) if trace.recent_records.size else NO_KEY,
    )
    return b"".join([head, *(U64.pack(tables.text_key(t)) for t in packer.threads), *groups, *channels])


class _Packer:
    """One record on its way."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables
        self.threads: list[str] = []

    def members(self, ranks: tuple[int, ...] | None) -> int:
        return NO_KEY if ranks is None else self._tables.members_key(ranks)

    def group(self, group: GroupTrace) -> bytes:
        shape, own = self._track(group.collectives) if group.collectives else (NO_KEY, b"")
        volumes = _pack_volumes(group.volumes) if group.volumes else b""
        head = GROUP.pack(
            self._tables.text_key(group.name),
            self._tables.text_key(group.desc),
            self.members(group.members),
            shape,
            NOTHING if group.last_enqueued is None else group.last_enqueued,
            NOTHING if group.last_completed is None else group.last_completed,
            len(own),
            len(volumes),
        )
        return head + own + volumes

    def channel(self, channel: ChannelTrace, group: int) -> bytes:
        shape, own = self._track(channel.messages)
        return CHANNEL.pack(group, channel.source, channel.destination, shape, len(own)) + own

    def _track(self, track: Track) -> tuple[int, bytes]:
        ends = (track.last_done, track.first_active, track.last)
        ops = list({op.seq: op for op in ends if op is not None}.values())
        done, active, last = (None if op is None else [o.seq for o in ops].index(op.seq) for op in ends)
        assert last is not None  # every track has a last op
        shape = TrackShape(
            count=track.count,
            first_seq=track.first_seq,
            last_seq=track.last_seq,
            from_start=track.from_start,
            blocks=track.blocks,
            recent_seqs=track.recent_seqs,
            last_done=done,
            first_active=active,
            last=last,
            ops=tuple(_shape_of(op) for op in ops),
        )
        packed = pack_shape(shape, self._tables.signature_key, self._tables.stack)
        times = PAUSE.pack(track.longest_pause_seq, track.longest_pause_ns) + pack_ints(track.recent_created_ns)
        return self._tables.shape_key(packed), b"".join(map(self._own, ops)) + times

    def _own(self, op: Op) -> bytes:
        thread = op.thread if op.thread in self.threads or len(self.threads) < MAX_THREADS else ""
        if thread not in self.threads:
            self.threads.append(thread)
        since = NOTHING if op.since_previous_ns is None else op.since_previous_ns
        return OWN_OP.pack(op.record_id, op.created_ns, since, op.completed_ns, self.threads.index(thread))


def _shape_of(op: Op) -> OpShape:
    return OpShape(op.seq, op.batch, op.signatures, op.state, op.retired, op.timeout_ms, op.stack)


def _pack_volumes(volumes: Volumes) -> bytes:
    return pack_ints(volumes.seqs) + pack_ints(volumes.sent) + pack_ints(volumes.received)
