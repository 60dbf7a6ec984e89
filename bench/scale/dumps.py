"""The dumps of a world, as PyTorch would have written them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.pickler import Pickler, Value
from bench.scale.faults import STEPS_BEFORE, FaultKind, World
from bench.scale.mesh import DESC, Kind, Mesh
from bench.scale.program import Batch, Call, Message, Unit, entries, one_step

ENTRIES = 2000
"""The recorder's usual size."""
_START_NS = 1_760_000_000_000_000_000
_STEP_NS = 2_000_000_000
_RUN_NS = 2_000_000
_JITTER_NS = 700_000
_SKEW_NS = 20_000_000
"""By which the clocks of ranks differ."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One row of the recorder, before it is written."""

    part: Call | Message | Batch
    """A batch stands for the entry that closes it."""
    record: int
    collective_seq: int
    message_seq: int
    op: int
    state: str
    done: bool
    created_ns: int


class Dumps:
    """All dumps of a world. Ranks that did the same share a template: only times, threads and headers differ."""

    def __init__(self, world: World, entries: int = ENTRIES) -> None:
        """`entries`: the size of the ring buffers."""
        self.world = world
        self.entries = entries
        self._templates: dict[object, Template] = {}

    def __contains__(self, rank: int) -> bool:
        """A lost rank leaves none."""
        return self.world.kind is not FaultKind.LOST or rank != self.world.rank

    def ranks(self) -> Iterator[int]:
        return (rank for rank in range(self.world.mesh.ranks) if rank in self)

    def dump(self, rank: int) -> bytes:
        place = self.world.place(rank)
        key = (place.stage, rank == self.world.rank, self.world.reach[place])
        if key not in self._templates:
            self._templates[key] = Template.of(self.world, rank, self.entries)
        return self._templates[key].dump(self.world, rank)


@dataclass(frozen=True, slots=True)
class Template:
    entries: NDArray[np.uint8]
    time_bytes: NDArray[np.intp]
    """Of shape (times, 8): where the bytes of each time lie."""
    times: NDArray[np.int64]
    threads: tuple[tuple[int, int], ...]
    """Which thread ids are written, and where."""
    status: Value
    memo_size: int
    """Strings before the entries. References only fit behind a header with as many."""

    @classmethod
    def of(cls, world: World, rank: int, size: int) -> Self:
        rows = _rows(world, rank, size)
        status = _status(rows)
        pickler = Pickler(row.part.stack for row in rows)
        _write_header(pickler, world.mesh, rank, status)
        entries_at, memo_size = len(pickler.out), pickler.memo_size
        first_time = len(pickler.long_offsets)
        pickler.write([_entry(row, world, rank) for row in rows])
        pickler.end_dict()
        pickler.finish()
        written = np.frombuffer(bytes(pickler.out[entries_at:]), np.uint8)
        time_bytes = (np.array(pickler.long_offsets[first_time:]) - entries_at)[:, None] + np.arange(8)
        threads = [(n, pickler.string_offsets.get(thread)) for n, thread in enumerate(_threads(rank))]
        return cls(
            written,
            time_bytes,
            written[time_bytes].view(np.int64)[:, 0],
            tuple((n, at - entries_at) for n, at in threads if at is not None),
            status,
            memo_size,
        )

    def dump(self, world: World, rank: int) -> bytes:
        header = Pickler()
        _write_header(header, world.mesh, rank, self.status)
        assert header.memo_size == self.memo_size
        noise = np.random.default_rng(rank)
        times = self.times + noise.integers(0, _JITTER_NS, len(self.times)) + noise.integers(0, _SKEW_NS)
        written = self.entries.copy()
        written[self.time_bytes] = times.view(np.uint8).reshape(-1, 8)
        for n, at in self.threads:
            thread = _threads(rank)[n].encode()
            written[at : at + len(thread)] = np.frombuffer(thread, np.uint8)
        return bytes(header.out) + written.tobytes()


def _rows(world: World, rank: int, size: int) -> list[_Entry]:
    """What the ring buffer holds when the job hangs."""
    place = world.place(rank)
    step = one_step(world.mesh, place.stage)
    tail, reach = world.programs[place], world.reach[place]
    units = [*step, *tail[: reach.issued]]
    done = len(step) + reach.done
    wanted = size + sum(map(entries, step))
    steps = 0
    while sum(map(entries, units)) < wanted:
        units, done, steps = [*step, *units], done + len(step), steps + 1
    first_step = STEPS_BEFORE - steps - 1
    rows = _record(units, done, first_step, step, timed=world.timed)
    return rows[-size:]


def _record(units: list[Unit], done: int, first_step: int, step: tuple[Unit, ...], *, timed: bool) -> list[_Entry]:
    count = Counter({kind: first_step * n for kind, n in _counts(step).items()})
    record = first_step * sum(map(entries, step))
    rows: list[_Entry] = []
    for n, unit in enumerate(units):
        created = _START_NS + first_step * _STEP_NS + n * (_STEP_NS // len(step))
        state = "completed" if n < done else "started" if timed and n == done else "scheduled"
        kind = unit.kind if isinstance(unit, Call) else Kind.PP
        count[kind] += 1
        parts = (unit,) if isinstance(unit, Call) else (*unit.messages, unit)
        for within, part in enumerate(parts):
            own = "scheduled" if isinstance(part, Message) else state
            count[f"op {kind}"] += not isinstance(part, Batch)
            p2p = kind is Kind.PP
            seqs = (0, count[kind]) if p2p else (count[kind], 0)
            rows.append(
                _Entry(part, record, *seqs, count[f"op {kind}"], own, own == "completed", created + within * 50_000)
            )
            record += 1
    return rows


def _counts(step: tuple[Unit, ...]) -> Counter[object]:
    counts: Counter[object] = Counter()
    for unit in step:
        kind = unit.kind if isinstance(unit, Call) else Kind.PP
        counts[kind] += 1
        counts[f"op {kind}"] += 1 if isinstance(unit, Call) else len(unit.messages)
    return counts


def _status(rows: list[_Entry]) -> Value:
    """By `pg_id`. Messages count in their own numbers, and only the entry that closes a batch counts."""
    found: dict[str, Value] = {}
    for kind in Kind:
        mine = [row for row in rows if _kind(row.part) is kind and not isinstance(row.part, Message)]
        found[str(int(kind))] = {
            "last_enqueued_collective": _last(mine),
            "last_started_collective": _last([r for r in mine if r.state != "scheduled"]) if _timed(rows) else -1,
            "last_completed_collective": _last([r for r in mine if r.done]),
        }
    return found


def _timed(rows: list[_Entry]) -> bool:
    return any(row.state == "started" for row in rows)


def _last(rows: list[_Entry]) -> int:
    return max((row.collective_seq or row.message_seq for row in rows), default=-1)


def _kind(part: Call | Message | Batch) -> Kind:
    return part.kind if isinstance(part, Call) else Kind.PP


def _write_header(pickler: Pickler, mesh: Mesh, rank: int, status: Value) -> None:
    """Everything before the entries, in PyTorch's order (groups sorted by name)."""
    groups: dict[str, Value] = {}
    for kind in Kind:
        name = mesh.group_name(rank, kind)
        groups[name] = {"name": name, "desc": DESC[kind], "ranks": _written(mesh.members(rank, kind))}
    pickler.begin_dict()
    header: dict[str, Value] = {
        "version": "2.10",
        "pg_config": groups,
        "comm_lib_version": "2.27.5",
        "pg_status": status,
    }
    for key, value in header.items():
        pickler.write(key)
        pickler.write(value)
    pickler.write("entries")


@cache
def _written(ranks: range) -> str:
    return str(list(ranks))


def _threads(rank: int) -> tuple[str, str]:
    return str(139_000_000_000_000 + rank * 4096), str(139_500_000_000_000 + rank * 4096)


def _entry(row: _Entry, world: World, rank: int) -> Value:
    part = row.part
    kind = _kind(part)
    backward = isinstance(part, Call) and part.backward
    sizes = _sizes(part)
    dtypes: list[Value] = [] if isinstance(part, Batch) else [part.dtype]
    return {
        "frames": list(part.stack),
        "record_id": row.record,
        "pg_id": int(kind),
        "process_group": (world.mesh.group_name(rank, kind), DESC[kind]),
        "thread_name": "pt_autograd_0" if backward else "pt_main_thread",
        "thread_id": _threads(rank)[backward],
        "collective_seq_id": row.collective_seq,
        "p2p_seq_id": row.message_seq,
        "op_id": row.op,
        "profiling_name": _name(part),
        "time_created_ns": row.created_ns,
        "input_sizes": sizes[0],
        "input_dtypes": dtypes,
        "output_sizes": sizes[1],
        "output_dtypes": dtypes,
        "state": row.state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": row.created_ns + _RUN_NS if row.done else None,
        "retired": row.done,
        "timeout_ms": 600_000,
        "is_p2p": isinstance(part, Message),
    }


def _sizes(part: Call | Message | Batch) -> tuple[list[Value], list[Value]]:
    match part:
        case Call():
            return [list(part.input_size)], [list(part.output_size)]
        case Message():
            return [list(part.size)], [list(part.size)]
        case Batch():
            return [], []


def _name(part: Call | Message | Batch) -> str:
    match part:
        case Call():
            return part.name
        case Message():
            sent, received = (
                f"nccl:send {part.source}->{part.destination}",
                f"nccl:recv {part.destination}<-{part.source}",
            )
            return sent if part.is_send else received
        case Batch():
            return "nccl:coalesced"
