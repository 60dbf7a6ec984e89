"""Mutates dumps and decodes them: `python tests/ingest/fuzz.py --count 20000 --seed 1`.

In a process of its own, so that a crash is seen and its memory can be measured. For every mutation: nothing but an
InputError escapes, its message is one line, the layouts and the machine alone give the same, and it ends soon.
"""

# ruff: noqa: E402  runs as a script too, so its paths come first
import argparse
import json
import pickle
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from forkpoint.errors import InputError
from forkpoint.traces.dump import decode
from ingest.compare import both_ways
from ingest.encode import encode
from ingest.samples import real_dumps, varied_dump

MAX_PEAK_MB = 200
MAX_CPU_S = 3.0
"""For one file, read three times."""

Mutation = Callable[[random.Random, bytearray], None]


def flip(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def overwrite(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] = chance.choice(OPCODES)


def insert(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    data[at:at] = bytes(chance.choices(OPCODES, k=chance.choice([1, 1, 2, 5])))


def cut(chance: random.Random, data: bytearray) -> None:
    if len(data) > 1:
        del data[chance.randrange(1, len(data)) :]


def remove(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.choice([1, 2, 5, 100])]


def repeat(chance: random.Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    piece = data[at : at + chance.choice([1, 2, 5, 50, 300])]
    data[at:at] = piece * chance.choice([1, 2, 20, 200])


def splice(chance: random.Random, data: bytearray) -> None:
    at, source = chance.randrange(len(data)), chance.randrange(len(data))
    length = chance.choice([1, 4, 30, 300])
    data[at : at + length] = data[source : source + length]


def swap(chance: random.Random, data: bytearray) -> None:
    """Exchanges two references to the memo, or whatever stands at two such places."""
    places = [i for i in range(0, len(data) - 1, 3) if data[i] == 0x68]
    if len(places) > 1:
        a, b = chance.sample(places, 2)
        data[a + 1], data[b + 1] = data[b + 1], data[a + 1]


OPCODES = (
    b"(.NKMJGX]})\x85\x86\x87taeus\x88\x89\x8a\x8b\x8c\x8d\x94\x95hjqrCB\x8e\x80"
    b"cRbio\x81\x92\x93PQ012dl\x8f\x90\x00\xff"
)
MUTATIONS: tuple[Mutation, ...] = (flip, flip, overwrite, insert, cut, remove, repeat, splice, swap)


def seeds() -> list[bytes]:
    """Real dumps, and generated ones in all the ways to write them."""
    generated = [varied_dump(seed, count) for seed, count in ((1, 3), (2, 12), (3, 60))]
    plain = [json.loads(json.dumps(dump)) for dump in generated]
    return [
        *(path.read_bytes() for path in real_dumps()[:24]),
        *(encode(dump) for dump in generated),
        encode(generated[1]["entries"]),
        *(pickle.dumps(dump, protocol) for dump in plain for protocol in (2, 3, 4, 5)),
        *(json.dumps(dump).encode() for dump in plain),
    ]


def check(data: bytes) -> str:
    """Decodes in all ways; what came of it, in a word."""
    fast, slow = both_ways(data)
    assert fast == slow, f"layouts and machine differ: {fast!r:.300} {slow!r:.300}"
    try:
        columns = decode(data, "file")
    except InputError as error:
        message = str(error)
        assert message.startswith("file: "), message
        assert message.isprintable(), message
        return type(error).__name__
    for index, table in (
        (columns.group, columns.groups),
        (columns.signature, columns.signatures),
        (columns.thread, columns.threads),
        (columns.stack, columns.stacks),
    ):
        assert index.max(initial=-1) < len(table)
    assert columns.header.cut is None or columns.header.cut.isprintable()
    return "cut" if columns.header.cut else "whole"


def fuzz(count: int, seed: int) -> dict[str, object]:
    """Raises an AssertionError that names the mutation at which a promise broke."""
    chance = random.Random(seed)
    originals = seeds()
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for number in range(count):
        data = bytearray(chance.choice(originals))
        for mutate in chance.choices(MUTATIONS, k=chance.choice([1, 1, 2, 4])):
            if data:
                mutate(chance, data)
        start = time.process_time()
        try:
            outcomes[check(bytes(data))] += 1
        except Exception as error:
            raise AssertionError(
                f"mutation {number} of seed {seed}: {error!r}; file {bytes(data).hex()[:2000]}"
            ) from error
        slowest = max(slowest, time.process_time() - start)
    return {"mutations": count, **outcomes, "slowest_ms": round(1000 * slowest), "peak_mb": _peak_mb()}


def _peak_mb() -> int:
    """Of this process alone: ru_maxrss starts with the size of the process that forked it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024


def fuzz_in_child(count: int, seed: int) -> dict[str, object]:
    """Runs `fuzz` in a process of its own and checks what only the outside sees."""
    command = [sys.executable, __file__, "--count", str(count), "--seed", str(seed), "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout)
    assert result["peak_mb"] < MAX_PEAK_MB, result
    assert result["slowest_ms"] < 1000 * MAX_CPU_S, result
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", action="store_true", help="in this process")
    arguments = parser.parse_args()
    run = fuzz if arguments.child else fuzz_in_child
    sys.stdout.write(json.dumps(run(arguments.count, arguments.seed)) + "\n")


if __name__ == "__main__":
    main()
