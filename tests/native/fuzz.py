"""Mutates dumps and reads them with both readers: `python tests/native/fuzz.py --count 20000 --seed 1`.

In a process of its own, so that a crash of the library is seen. For every mutation: the compiled reader declines, or
says byte for byte what the Python reader says.
"""

# ruff: noqa: E402  runs as a script too, so its paths come first
import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from forkpoint.traces.native import NativePacker
from ingest.encode import encode
from ingest.fuzz import MUTATIONS
from ingest.samples import real_dumps
from native.compare import Pair
from native.samples import whole_dump

MAX_BYTES = 20_000
"""Of the files that are mutated: small ones are read often."""


def number(chance: random.Random, data: bytearray) -> None:
    """Changes what looks like a number, and leaves the form of the file as it is."""
    places = [i for i in range(len(data) - 9) if data[i] in b"KMJ" or data[i : i + 2] == b"\x8a\x08"]
    for at in chance.choices(places, k=chance.choice([1, 1, 3])) if places else []:
        data[at + (2 if data[at] == 0x8A else 1)] = chance.choice([0, 1, 2, 3, 17, 127, 128, 255])


def reference(chance: random.Random, data: bytearray) -> None:
    """Lets a reference name another value."""
    places = [i for i in range(len(data) - 1) if data[i] == 0x68]
    for at in chance.choices(places, k=chance.choice([1, 1, 3])) if places else []:
        data[at + 1] = data[chance.choice(places) + 1]


def letter(chance: random.Random, data: bytearray) -> None:
    places = [i for i in range(len(data)) if data[i] in b"0123456789[]->< :_ced"]
    for at in chance.choices(places, k=chance.choice([1, 2, 5])) if places else []:
        data[at] = chance.choice(b"0123456789[]->< :_cedx\xc3")


CAREFUL = (number, number, reference, letter)
"""Mutations after which a file is often still whole: otherwise most are declined at once."""


def seeds() -> list[bytes]:
    """Real dumps of several cases, and written ones with all that a summary looks at."""
    real = [data for path in real_dumps()[::12] if len(data := path.read_bytes()) < MAX_BYTES]
    return real + [encode(whole_dump(seed, count)) for seed, count in ((1, 4), (2, 12), (3, 40), (4, 90))]


def fuzz(count: int, seed: int) -> dict[str, int]:
    """Raises an AssertionError that names the mutation at which the readers differ."""
    packer = NativePacker.if_installed()
    assert packer is not None, "forkpoint-native is not installed"
    chance, originals, pair = random.Random(seed), seeds(), Pair(packer)
    outcomes: Counter[str] = Counter()
    for number in range(count):
        data = bytearray(chance.choice(originals))
        for mutate in chance.choices(chance.choice([MUTATIONS, CAREFUL]), k=chance.choice([1, 1, 2])):
            if len(data) > 1:
                mutate(chance, data)
        try:
            outcomes["taken" if pair.assert_same(bytes(data)) else "declined"] += 1
        except AssertionError as error:
            raise AssertionError(f"mutation {number} of seed {seed}: {error!s:.300}") from error
    pair.assert_same_tables()
    return {"mutations": count, **outcomes}


def fuzz_in_child(count: int, seed: int) -> dict[str, int]:
    command = [sys.executable, __file__, "--count", str(count), "--seed", str(seed), "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


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
