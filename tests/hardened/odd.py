"""Files that once ended a diagnosis, or cost far more than their size, beside dumps that are in order."""

import gzip
from collections.abc import Callable
from pathlib import Path

from ingest.encode import encode
from ingest.samples import T0, dump, entry

RANKS = 4
CALLS = 20


def good_dump(rank: int) -> bytes:
    """Rank 2 left before the last call, in which the others wait."""
    calls = [entry(number) for number in range(CALLS - 1)]
    waiting = {"state": "scheduled", "time_discovered_completed_ns": None, "retired": False}
    return encode(dump(calls if rank == 2 else [*calls, entry(CALLS - 1, **waiting)]))


def with_good(folder: Path, name: str, odd: bytes) -> Path:
    """The folder, with the odd file in place of rank 3's dump."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS - 1):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(good_dump(rank))
    (folder / name).write_bytes(odd)
    return folder


def holes() -> bytes:
    return encode(dump([entry(number, collective_seq_id=1 + 3 * number) for number in range(12)]))


def far_jump() -> bytes:
    """In the numbers of one group, between calls that the others hold."""
    return encode(dump([entry(n, collective_seq_id=n + 1 if n < 15 else n + (1 << 21)) for n in range(CALLS)]))


def huge_group() -> bytes:
    ranks = f"[{', '.join(map(str, range((1 << 20) + 1)))}]"
    return encode(dump([entry(0)], pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}))


def negative_group() -> bytes:
    return encode(dump([entry(0, pg_id=-5, profiling_name="nccl:send 3->0", is_p2p=True, p2p_seq_id=1)]))


def descending() -> bytes:
    return encode(dump([entry(number, collective_seq_id=CALLS - number) for number in range(CALLS)]))


def second_dump_behind() -> bytes:
    return encode(dump([entry(number) for number in range(CALLS)])) + encode(dump([entry(0)]))


ODD: dict[str, Callable[[], bytes]] = {
    "holes in the sequence numbers": holes,
    "a jump in the sequence numbers": far_jump,
    "a group of a million ranks": huge_group,
    "a send in group -5": negative_group,
    "numbers that descend": descending,
    "a second dump behind the first": second_dump_behind,
}

# ---------------------------------------------------------------------------------------------------------------------
# Dumps of any size, to see how what they cost grows.


def sends_of_one_batch(count: int) -> bytes:
    send = {"profiling_name": "nccl:send 0->1", "is_p2p": True, "p2p_seq_id": 1}
    return encode(dump([entry(number, **send) for number in range(count)]))


def groups(count: int) -> bytes:
    """Each used once, and declared."""
    calls = [entry(n, pg_id=n, process_group=(str(n), f"g{n}"), collective_seq_id=1) for n in range(count)]
    return encode(dump(calls, pg_config={str(n): {"name": str(n), "desc": f"g{n}", "ranks": "[0, 1]"} for n in range(count)}))  # fmt: skip


def peers(count: int) -> bytes:
    """A message to each of so many ranks."""
    sends = [entry(n, profiling_name=f"nccl:send 0->{n + 1}", is_p2p=True, p2p_seq_id=n + 1) for n in range(count)]
    return encode(
        dump(sends, pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(count + 1)))}})
    )


def empty_marks(count: int) -> bytes:
    return b"\x80\x02]" + b"(e" * count


def stacks(count: int) -> bytes:
    frames = [{"name": f"f{n}", "filename": "/train/train.py", "line": n} for n in range(count)]
    return encode(dump([entry(number, frames=[frames[number]]) for number in range(count)]))


def braces(count: int) -> bytes:
    return b'{"entries": [' + b"{}," * count + b"{}]}"


GROWING: dict[str, tuple[Callable[[int], bytes], int]] = {
    "sends with one number": (sends_of_one_batch, 500),
    "groups": (groups, 100),
    "peers": (peers, 200),
    "marks that hold nothing": (empty_marks, 20_000),
    "stacks": (stacks, 200),
    "objects that hold nothing": (braces, 5_000),
}
"""What grows, and how many of it the smaller file has."""

# ---------------------------------------------------------------------------------------------------------------------
# A long text that is written once and meant a thousand times.


def long_frames(count: int, length: int) -> bytes:
    text = "x" * length
    frames = [{"name": text, "filename": text, "line": line} for line in range(count)]
    return encode(dump([entry(number, frames=[frames[number]]) for number in range(count)]))


def long_types(count: int, length: int) -> bytes:
    return encode(dump([entry(n, input_sizes=[[n]], input_dtypes=["y" * length]) for n in range(count)]))


def long_groups(count: int, length: int) -> bytes:
    return encode(dump([entry(number, process_group=("z" * length, str(number))) for number in range(count)]))


AMPLIFIED: dict[str, Callable[[int, int], bytes]] = {
    "frames": long_frames,
    "element types": long_types,
    "group names": long_groups,
}


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=T0 // 10**9)
