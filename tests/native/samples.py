"""Dumps of schema 2.10 that hold all that a summary looks at."""

import random

from ingest.samples import STACKS, T0, dump, entry

SIZES = ([[]], [[16]], [[16, 4096]], [[3], [5, 0]], [[70_000, 300]], [])
COLLECTIVES = ("all_reduce", "_all_gather_base", "all_gather", "all_to_all", "scatter", "gather", "barrier")
GROUPS = (("0", "default_pg"), ("17", "mesh_tp"), ("9", "undefined"))
THREADS = ("pt_main_thread", "pt_autograd_0", "gloo")


def whole_dump(seed: int, count: int, *, lib: str = "nccl") -> dict[str, object]:
    """Collectives, coalesced groups, messages alone and in batches, in three groups, some without stacks."""
    chance = random.Random(seed)
    first = chance.choice([0, 0, 7])
    seqs, p2p_seqs = [chance.choice([0, 100, 126]) for _ in GROUPS], [0, 0, 40]
    entries: list[dict[str, object]] = []
    while len(entries) < count:
        group = chance.randrange(len(GROUPS))
        calls = _calls(chance, lib)
        is_p2p = "->" in calls[0] or "<-" in calls[0]
        seqs[group] += 0 if is_p2p else chance.choice([1, 1, 1, 2])
        p2p_seqs[group] += is_p2p
        entries += [
            _entry(chance, first + len(entries) + i, group, call, (seqs[group], p2p_seqs[group]))
            for i, call in enumerate(calls)
        ]
    last = {"last_started_collective": -1, "last_completed_collective": 3}
    return dump(
        entries,
        pg_config={
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "17": {"name": "17", "desc": "mesh_tp", "ranks": "[2, 3]"},
            "20": {"name": "20", "desc": "mesh_dp", "ranks": "[0, 3]"},
        },
        pg_status={str(i): {"last_enqueued_collective": max(0, seqs[i] - 1), **last} for i in range(2)},
    )


def _calls(chance: random.Random, lib: str) -> list[str]:
    peers = chance.choice(["send 1->0", "recv 1<-0", "send 1->3", "recv 1<-?"])
    kind = chance.randrange(10)
    if kind == 0:
        return [f"{lib}:{peers}"]
    if kind == 1:
        return [f"{lib}:send 1->0", f"{lib}:recv 1<-0", f"{lib}:coalesced"]
    if kind == 2:
        return [f"{lib}:_all_gather_base", f"{lib}:all_reduce", f"{lib}:ALLGATHER_coalesced"]
    return [f"{lib}:{chance.choice(COLLECTIVES)}"]


def _entry(chance: random.Random, number: int, group: int, name: str, seqs: tuple[int, int]) -> dict[str, object]:
    is_marker, is_p2p = name.endswith("coalesced"), "->" in name or "<-" in name
    state = chance.choice(["completed", "completed", "completed", "scheduled", "started"])
    sizes = ([], []) if is_marker else (chance.choice(SIZES), chance.choice(SIZES))
    created = T0 + number * 1_000_000 + chance.randrange(1_000_000)
    took = chance.choice([0, 700_000, 700_000_000_000])
    fields = entry(
        number,
        frames=chance.choice([*STACKS, STACKS[0][:1], ...]),
        pg_id=group,
        process_group=GROUPS[group],
        thread_name=chance.choice(THREADS),
        collective_seq_id=seqs[0],
        p2p_seq_id=seqs[1],
        profiling_name=name,
        time_created_ns=created,
        input_sizes=sizes[0],
        input_dtypes=["BFloat16"] * len(sizes[0]),
        output_sizes=sizes[1],
        output_dtypes=["Float"] * len(sizes[1]),
        state=state,
        time_discovered_started_ns=created if state == "started" and chance.random() < 0.5 else None,
        time_discovered_completed_ns=created + took if state == "completed" else None,
        retired=state == "completed" and chance.random() < 0.7,
        timeout_ms=chance.choice([600_000, 600_000, 0]),
        is_p2p=is_p2p,
    )
    return fields | ({"duration_ms": chance.random()} if number % 3 == 0 else {})
