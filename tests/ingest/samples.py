"""Small dumps as the versions of PyTorch would describe them, before they are written."""

import random
from pathlib import Path

CASES = Path(__file__).parents[2] / "cases"
T0 = 1_794_705_486_263_986_970

MAIN = {"name": "main", "filename": "/train/train.py", "line": 26}
MODULE = {"name": "<module>", "filename": "/train/train.py", "line": 42}
ALL_REDUCE = {"name": "all_reduce", "filename": "/site-packages/torch/distributed/distributed_c10d.py", "line": 3068}
LOSS = {"name": "average_loss", "filename": "/train/metrics.py", "line": 15}
STACKS = ([ALL_REDUCE, MAIN, MODULE], [ALL_REDUCE, LOSS, MAIN, MODULE], [])


def entry(number: int = 0, /, **changed: object) -> dict[str, object]:
    """An entry of schema 2.10; a field that is changed to `...` is left out."""
    fields: dict[str, object] = {
        "frames": STACKS[number % 3],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "pt_main_thread",
        "thread_id": "140315755417920",
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": T0 + number * 1_000_000,
        "input_sizes": [[16, 4096]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[16, 4096]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": T0 + number * 1_000_000 + 700_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    fields.update(changed)
    return {key: value for key, value in fields.items() if value is not ...}


def dump(entries: list[dict[str, object]], /, **changed: object) -> dict[str, object]:
    """A dump of schema 2.10; a field that is changed to `...` is left out."""
    fields: dict[str, object] = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "comm_lib_version": "2.28.9",
        "pg_status": {
            "0": {"last_enqueued_collective": 15, "last_started_collective": -1, "last_completed_collective": 14}
        },
        "entries": entries,
    }
    fields.update(changed)
    return {key: value for key, value in fields.items() if value is not ...}


def varied_dump(seed: int, count: int) -> dict[str, object]:
    """Entries that change from one to the next as in a real job: stacks, groups, sizes, states, messages, timing."""
    chance = random.Random(seed)
    frames = [{"name": f"f{i}", "filename": f"/train/part{i % 5}.py", "line": 10 * i} for i in range(40)]
    stacks = [chance.sample(frames, chance.randrange(20)) for _ in range(30)]
    names = ["nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 0->1", "nccl:recv 0<-1", "nccl:coalesced"]
    entries: list[dict[str, object]] = []
    for number in range(count):
        name = chance.choice(names)
        size = [[chance.choice([1, 300, 70_000, 3_000_000_000]) for _ in range(chance.randrange(4))]]
        done = chance.random() < 0.8
        changes: dict[str, object] = {
            "frames": chance.choice(stacks),
            "pg_id": number % 2,
            "process_group": (("0", "default_pg"), ("17", "mesh_tp"))[number % 2],
            "thread_name": chance.choice(["pt_main_thread", "pt_autograd_0"]),
            "profiling_name": name,
            "is_p2p": "send" in name or "recv" in name,
            "input_sizes": size,
            "output_sizes": size,
            "state": "completed" if done else "scheduled",
            "time_discovered_completed_ns": T0 + number if done else None,
            "retired": done,
        }
        if chance.random() < 0.02:
            changes["frames"] = ...
        fields = entry(number, **changes)
        if number >= count // 2 and done:
            fields["duration_ms"] = chance.random()
        entries.append(fields)
    return dump(entries)


def real_dumps() -> list[Path]:
    """Dumps of the recorded cases, as PyTorch wrote them."""
    return sorted(CASES.glob("*/capture/*trace_rank_*"))
