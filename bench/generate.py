"""Flight recorder dumps of a job that hangs, as PyTorch would have written them: `python -m bench.generate FOLDER`."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.job import Group, Job, Place
from bench.pickler import Pickler, Value

_START_NS = 1_760_000_000_000_000_000
_CALL_NS = 5_000_000
_RUN_NS = 2_000_000
_JITTER_NS = 700_000
_DESC = {Group.WORLD: "default_pg", Group.TP: "mesh_tp", Group.DP: "mesh_dp"}


def write_dumps(folder: Path, job: Job) -> None:
    """One file per rank, named as PyTorch names them."""
    templates: dict[Place, Template] = {}
    for rank in range(job.ranks):
        place = job.place(rank)
        if place not in templates:
            templates[place] = Template.of(job, rank)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(templates[place].dump(job, rank))


def encode_dump(job: Job, rank: int) -> tuple[Pickler, int]:
    """A whole dump, finished, and where its entries begin."""
    recorded = _recorded(job, rank)
    pickler = Pickler(job.call(index).stack for index in recorded)
    _write_header(pickler, job, rank)
    entries_at = len(pickler.out)
    pickler.write([_entry(job, rank, index) for index in recorded])
    pickler.end_dict()
    pickler.finish()
    return pickler, entries_at


@dataclass(frozen=True, slots=True)
class Template:
    """The entries of one rank, from which those of all ranks of the same place are made: only times and threads differ."""

    entries: NDArray[np.uint8]
    time_bytes: NDArray[np.intp]
    """Of shape (times, 8): where the bytes of each time lie."""
    times: NDArray[np.int64]
    threads: tuple[int, int]
    """Where the thread ids lie."""
    memo_size: int
    """Strings before the entries. References only fit behind a header with as many."""

    @classmethod
    def of(cls, job: Job, rank: int) -> Self:
        pickler, entries_at = encode_dump(job, rank)
        entries = np.frombuffer(bytes(pickler.out[entries_at:]), np.uint8)
        time_bytes = (np.array(pickler.long_offsets) - entries_at)[:, None] + np.arange(8)
        main, autograd = (pickler.string_offsets[thread] - entries_at for thread in _threads(rank))
        header = Pickler()
        _write_header(header, job, rank)
        times = entries[time_bytes].view(np.int64)[:, 0]
        return cls(entries, time_bytes, times, (main, autograd), header.memo_size)

    def dump(self, job: Job, rank: int) -> bytes:
        header = Pickler()
        _write_header(header, job, rank)
        assert header.memo_size == self.memo_size
        noise = np.random.default_rng(rank)
        times = self.times + noise.integers(0, _JITTER_NS, len(self.times)) + noise.integers(0, 20 * _JITTER_NS)
        entries = self.entries.copy()
        entries[self.time_bytes] = times.view(np.uint8).reshape(-1, 8)
        for at, thread in zip(self.threads, _threads(rank), strict=True):
            entries[at : at + len(thread)] = np.frombuffer(thread.encode(), np.uint8)
        return bytes(header.out) + entries.tobytes()


def _recorded(job: Job, rank: int) -> range:
    """The calls that are still in the rank's ring buffer."""
    end = job.leave if rank == job.leaver else job.end
    return range(end - job.entries, end)


def _write_header(pickler: Pickler, job: Job, rank: int) -> None:
    """Everything before the entries, in PyTorch's order (groups sorted by name)."""
    groups: dict[str, Value] = {}
    for group in Group:
        name = job.group_name(rank, group)
        groups[name] = {"name": name, "desc": _DESC[group], "ranks": str(list(job.members(rank, group)))}
    pickler.begin_dict()
    header: dict[str, Value] = {
        "version": "2.10",
        "pg_config": groups,
        "comm_lib_version": "2.27.5",
        "pg_status": {str(int(group)): _status(job, rank, group) for group in Group},
    }
    for key, value in header.items():
        pickler.write(key)
        pickler.write(value)
    pickler.write("entries")


def _status(job: Job, rank: int, group: Group) -> Value:
    recorded = _recorded(job, rank)
    mine = [index for index in recorded if job.call(index).group == group]
    done = [index for index in mine if _is_done(job, rank, index)]
    return {
        "last_enqueued_collective": job.seq(mine[-1]),
        "last_started_collective": -1,  # as without TORCH_NCCL_ENABLE_TIMING
        "last_completed_collective": job.seq(done[-1]),
    }


def _is_done(job: Job, rank: int, index: int) -> bool:
    return rank == job.leaver or index < job.reach[job.place(rank)]


def _threads(rank: int) -> tuple[str, str]:
    return str(139_000_000_000_000 + rank * 4096), str(139_500_000_000_000 + rank * 4096)


def _entry(job: Job, rank: int, index: int) -> Value:
    call = job.call(index)
    done = _is_done(job, rank, index)
    created = _START_NS + index * _CALL_NS
    return {
        "frames": list(call.stack),
        "record_id": index,
        "pg_id": int(call.group),
        "process_group": (job.group_name(rank, call.group), _DESC[call.group]),
        "thread_name": "pt_autograd_0" if call.backward else "pt_main_thread",
        "thread_id": _threads(rank)[call.backward],
        "collective_seq_id": job.seq(index),
        "p2p_seq_id": 0,
        "op_id": job.seq(index),
        "profiling_name": call.name,
        "time_created_ns": created,
        "input_sizes": [list(call.input_size)],
        "input_dtypes": [call.dtype],
        "output_sizes": [list(call.output_size)],
        "output_dtypes": [call.dtype],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created + _RUN_NS if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--entries", type=int, default=2000)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write_dumps(args.folder, Job(args.ranks, args.entries))


if __name__ == "__main__":
    main()
