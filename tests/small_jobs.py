"""Small jobs written down op by op, as each rank's recorder would hold them: for tests of single stages."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.log import LogEvent
from forkpoint.model.records import TraceRecord
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.traces.dump import decode
from forkpoint.traces.summary import summarise
from ingest.encode import encode

T0 = 1_794_705_486_000_000_000
STEP_NS = 10_000_000
TORCH = {
    "name": "all_reduce",
    "filename": "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py",
    "line": 68,
}
MODULE = {"name": "<module>", "filename": "/train/train.py", "line": 99}


def as_py_spy(*frames: tuple[str, str, int]) -> str:
    """A main thread, innermost frame first: function, file, line."""
    told = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    thread = {"pid": 1, "thread_id": 1, "thread_name": "MainThread", "active": True, "owns_gil": False}
    return json.dumps([{**thread, "frames": told}])


@dataclass
class SmallJob:
    """`op`, `send` and `recv` append to the ranks' programs; `capture` is what forkpoint would read."""

    world: int
    lib: str = "nccl"
    timeout_ms: int = 20_000
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """name -> (desc, ranks), besides the default group."""
    entries: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    now: int = 0

    def __post_init__(self) -> None:
        self.groups = {"0": ("default_pg", tuple(range(self.world))), **self.groups}
        self.entries = {rank: [] for rank in range(self.world)}

    def op(
        self,
        ranks: Iterable[int] | None = None,
        name: str = "all_reduce",
        size: int | Sequence[int] = 4,
        group: str = "0",
        line: int | None = 10,
        **changed: Any,
    ) -> None:
        """One collective of the group on these ranks (all members, if none are named). `line` None: no frames."""
        self.now += STEP_NS
        for rank in self.groups[group][1] if ranks is None else ranks:
            count = sum(e["process_group"][0] == group and not e["is_p2p"] for e in self.entries[rank])
            self._add(rank, f"{self.lib}:{name}", size, group, line, {"collective_seq_id": count + 1, **changed})

    def send(self, source: int, destination: int, group: str = "0", line: int = 20, **changed: Any) -> None:
        self._message(source, f"{self.lib}:send {{}}->{{}}", (source, destination), group, line, changed)

    def recv(self, destination: int, source: int, group: str = "0", line: int = 30, **changed: Any) -> None:
        self._message(destination, f"{self.lib}:recv {{}}<-{{}}", (destination, source), group, line, changed)

    def capture(
        self,
        ranks: Iterable[int] | None = None,
        buffer: dict[int, int] | None = None,
        events: tuple[LogEvent, ...] = (),
        stacks: tuple[LiveStack, ...] = (),
        logs: tuple[tuple[str, int | None], ...] = (),
    ) -> Capture:
        """Dumps of these ranks (all), each with its newest `buffer` entries."""
        tables = SharedTables()
        kept = tuple(range(self.world)) if ranks is None else tuple(ranks)
        traces = Traces.of((self.record(rank, tables, (buffer or {}).get(rank)) for rank in kept), tables)
        return Capture(traces, tables.build(), events, stacks, logs=logs)

    def record(self, rank: int, tables: SharedTables, buffer: int | None = None) -> TraceRecord:
        columns = decode(self.dump(rank, buffer), f"rank_{rank}")
        return TraceRecord(rank, f"rank_{rank}", summarise(columns, rank, tables))

    def dump(self, rank: int, buffer: int | None = None) -> bytes:
        mine = [(name, *rest) for name, rest in self.groups.items() if rank in rest[1]]
        held = self.entries[rank][-buffer:] if buffer else self.entries[rank]
        config = {name: {"name": name, "desc": desc, "ranks": str(list(members))} for name, desc, members in mine}
        if self.lib == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        status = {str(int(name)): self._status(rank, name) for name, _, _ in mine}
        return encode(
            {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": status, "entries": held}
        )

    def _status(self, rank: int, group: str) -> dict[str, int]:
        own = [e for e in self.entries[rank] if e["process_group"][0] == group]
        counter = [e["p2p_seq_id"] if e["is_p2p"] else e["collective_seq_id"] for e in own if not e.get("_entering")]
        last = counter[-1] if counter else -1
        return {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": -1}

    def _message(
        self, rank: int, name: str, ends: tuple[int, int], group: str, line: int, changed: dict[str, Any]
    ) -> None:
        self.now += STEP_NS
        members = self.groups[group][1]
        own = [e for e in self.entries[rank] if e["process_group"][0] == group]
        count = sum(e["is_p2p"] for e in own)
        epoch = sum(not e["is_p2p"] for e in own)
        text = name.format(members.index(ends[0]), members.index(ends[1]))
        fields = {"is_p2p": True, "p2p_seq_id": count + 1, "collective_seq_id": epoch}
        self._add(rank, text, 4, group, line, {**fields, **changed})

    def _add(
        self,
        rank: int,
        name: str,
        size: int | Sequence[int],
        group: str,
        line: int | None,
        changed: dict[str, Any],
    ) -> None:
        done = changed.pop("done", True)
        sizes = [[size]] if isinstance(size, int) else [list(size)]
        fields: dict[str, Any] = {
            "frames": []
            if line is None
            else [TORCH, {"name": "step", "filename": "/train/train.py", "line": line}, MODULE],
            "record_id": len(self.entries[rank]),
            "pg_id": int(group),
            "process_group": (group, self.groups[group][0]),
            "thread_name": "pt_main_thread",
            "thread_id": "1",
            "collective_seq_id": 0,
            "p2p_seq_id": 0,
            "op_id": 0,
            "profiling_name": name,
            "time_created_ns": T0 + self.now,
            "input_sizes": sizes,
            "input_dtypes": ["Float"],
            "output_sizes": sizes,
            "output_dtypes": ["Float"],
            "state": "completed" if done and self.lib != "gloo" else "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": T0 + self.now + STEP_NS // 2 if done else None,
            "retired": bool(done),
            "timeout_ms": self.timeout_ms,
            "is_p2p": False,
        }
        self.entries[rank].append({**fields, **changed})
