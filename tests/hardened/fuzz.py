"""Mutates captures and runs all of forkpoint over them: `python tests/hardened/fuzz.py --count 20000 --seed 1`.

Every input is a folder with a few files of a recorded case, of which one or two are changed: bytes of any file, values
inside a dump, records of a summary under a new seal. All of it is read, examined, drawn and written in every form. An
exception, a part that broke, more than 1 GB or more than 20 CPU seconds is a find; it is kept in --keep.
"""

# ruff: noqa: E402  runs as a script too, so its paths come first
import argparse
import json
import pickle
import random
import re
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

from forkpoint.errors import InputError
from forkpoint.evidence.summary_file import summarise
from hardened.whole import run_whole
from ingest.encode import encode
from ingest.fuzz import MUTATIONS

CASES = Path(__file__).parents[2] / "cases"
MAX_CPU_S = 20.0
MAX_BYTES = 100_000
"""Of a file that is mutated: small ones are read often."""
NUMBERS = (0, 1, 2, 3, -1, -5, 7, 100, 127, 1 << 15, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
WORDS = ("", "0", "nccl:send 0->1", "nccl:recv 1<-0", "nccl:coalesced", "gloo:all_reduce", "default_pg", "[]", "[0]",
         "scheduled", "started", "completed", "nccl:all_to_all", "nccl:broadcast", "\u202e", "x" * 400)  # fmt: skip

Tree = Any


def seeds() -> list[dict[str, bytes]]:
    """Small captures by file name; some as summaries."""
    found = []
    for folder in sorted(CASES.glob("[0-9]*/capture")):
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        if files and max(map(len, files.values())) < MAX_BYTES and len(files) <= 20:
            found.append(files)
    summarised = sorted(CASES.glob("[0-9]*/capture"))[::20]
    return [*found, *({"summary.fps": summarise([str(folder)])} for folder in summarised)]


def mutate(chance: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    changed = dict(files)
    for name in chance.sample(sorted(files), k=min(len(files), chance.choice([1, 1, 1, 2]))):
        data = changed[name]
        if name.endswith(".fps"):
            changed[name] = _resealed(chance, data)
        elif data[:1] == b"\x80" and chance.random() < 0.75:
            changed[name] = _other_values(chance, data)
        else:
            raw = bytearray(data)
            for change in chance.choices(MUTATIONS, k=chance.choice([1, 1, 2, 4])):
                if raw:
                    change(chance, raw)
            changed[name] = bytes(raw)
    return changed


def _resealed(chance: random.Random, data: bytes) -> bytes:
    """A summary whose pieces were changed inside, and sealed again as if nothing were wrong."""
    head = struct.Struct("<BII")
    at, pieces = 12, []
    while at < len(data):
        kind, _, packed = head.unpack_from(data, at)
        at += head.size + packed
        if kind != 255:
            pieces.append((kind, bytearray(zlib.decompress(data[at - packed : at]))))
    for _ in range(chance.choice([1, 1, 2, 5])):
        _, piece = chance.choice(pieces)
        if piece:
            chance.choice(MUTATIONS)(chance, piece)
    out = data[:12]
    for kind, piece in pieces:
        packed = zlib.compress(bytes(piece), 1)
        out += head.pack(kind, len(piece), len(packed)) + packed
    seal = blake2b(out, digest_size=16).digest()
    return out + head.pack(255, 16, 16) + seal


def _other_values(chance: random.Random, data: bytes) -> bytes:
    """A dump that is well formed and says other things. It is one of ours, so Python's own unpickler may read it."""
    tree: Tree = pickle.loads(data)
    if not isinstance(tree, dict) or not isinstance(tree.get("entries"), list):
        return data
    for _ in range(chance.choice([1, 1, 2, 3, 10])):
        chance.choice(CHANGES)(chance, tree)
    try:
        return encode(tree)
    except (TypeError, AssertionError, AttributeError):
        return pickle.dumps(tree, 2)


def _one_field(chance: random.Random, tree: Tree) -> None:
    if tree["entries"]:
        entry = chance.choice(tree["entries"])
        key = chance.choice(sorted(entry))
        entry[key] = _other(chance, entry[key])


def _field_of_all(chance: random.Random, tree: Tree) -> None:
    """From some entry on, a number grows, shrinks, jumps or stands still."""
    entries = tree["entries"]
    if entries:
        key = chance.choice(("collective_seq_id", "p2p_seq_id", "record_id", "time_created_ns", "pg_id", "op_id"))
        shift, factor = chance.choice(NUMBERS), chance.choice((-1, 0, 1, 1, 2, 3))
        for entry in entries[chance.randrange(len(entries)) :]:
            if isinstance(entry.get(key), int):
                value = entry[key] * factor + shift
                entry[key] = value if -(1 << 63) <= value < 1 << 63 else shift


def _order(chance: random.Random, tree: Tree) -> None:
    entries = tree["entries"]
    kind = chance.randrange(5)
    if not entries:
        return
    if kind == 0:
        chance.shuffle(entries)
    elif kind == 1:
        del entries[:: chance.choice([2, 3, 7])]
    elif kind == 2:
        entries += [dict(entry) for entry in chance.choices(entries, k=chance.choice([1, 5, 50]))]
    elif kind == 3:
        entries.reverse()
    else:
        del entries[chance.randrange(len(entries)) :]


def _names(chance: random.Random, tree: Tree) -> None:
    """Some entries become other calls, of another group."""
    name, group = chance.choice(WORDS), chance.choice([("0", "default_pg"), ("1", "x"), ("", ""), ("99", "default_pg")])
    for entry in tree["entries"]:
        if chance.random() < 0.3:
            entry["profiling_name"] = name
            if chance.random() < 0.5:
                entry["process_group"] = group
            entry["is_p2p"] = "send" in name or "recv" in name


def _header(chance: random.Random, tree: Tree) -> None:
    key = chance.choice(sorted(tree))
    if key != "entries":
        tree[key] = _other(chance, tree[key])


def _group(chance: random.Random, tree: Tree) -> None:
    config = tree.get("pg_config")
    if isinstance(config, dict) and config:
        group = config[chance.choice(sorted(config, key=str))]
        if isinstance(group, dict):
            group["ranks"] = chance.choice(
                ["[]", "[0]", "[3, 2, 1, 0]", "[0, 0, 1]", "[999999999]", "[0, 1, 2, 3, 4, 5]"]
            )


CHANGES = (_one_field, _one_field, _field_of_all, _field_of_all, _order, _names, _header, _group)


def _other(chance: random.Random, value: Tree) -> Tree:
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value, key=str))
        return {**value, key: _other(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], _other(chance, value[at]), *value[at + 1 :]]
    if isinstance(value, tuple) and len(value) == 2:
        return (_other(chance, value[0]), value[1])
    return chance.choice(
        [chance.choice(NUMBERS), chance.choice(NUMBERS), chance.choice(WORDS), None, True, [], [[]], {}]
    )


# --------------------------------------------------------------------------------------------------------------- running


def fuzz(count: int, seed: int, keep: Path | None, minutes: float | None = None) -> dict[str, object]:
    chance, captures = random.Random(seed), seeds()
    outcomes: Counter[str] = Counter()
    finds: Counter[str] = Counter()
    slowest, until = 0.0, time.monotonic() + 60 * minutes if minutes else None
    for number in range(count):
        if until and time.monotonic() > until:
            break
        files = mutate(chance, chance.choice(captures))
        with tempfile.TemporaryDirectory(prefix="fuzz", dir=_memory()) as folder:
            for name, data in files.items():
                (Path(folder) / name).write_bytes(data)
            start = time.process_time()
            find = "".join(_run(Path(folder), outcomes))
            took = time.process_time() - start
            slowest = max(slowest, took)
            find = find or (f"took {took:.0f} CPU s" if took > MAX_CPU_S else "")
            if find:
                finds[find] += 1
                if keep and finds[find] <= 2:
                    shutil.copytree(folder, keep / f"{seed}-{number}")
                    (keep / f"{seed}-{number}.txt").write_text(find)
    return {"inputs": sum(outcomes.values()), **outcomes, "finds": dict(finds.most_common()), "slowest_s": round(slowest, 2), "peak_mb": _peak_mb()}  # fmt: skip


def _run(folder: Path, outcomes: Counter[str]) -> Iterator[str]:
    """What is wrong, if anything."""
    try:
        verdict = run_whole([folder])
    except InputError:
        outcomes["unreadable"] += 1
        return
    except Exception as error:  # noqa: BLE001 - the find
        outcomes["broken"] += 1
        yield _place(traceback.format_exception(error))
        return
    outcomes["broken inside" if verdict.internal else str(verdict.cause)] += 1
    for problem in verdict.internal[:1]:
        yield f"{problem.part}: {_place(problem.trace.splitlines(keepends=True))}"


def _place(trace: list[str]) -> str:
    """The innermost line of forkpoint, and what was raised: one find for each."""
    places = re.findall(r'File ".*?(forkpoint/\S+)", line (\d+)', "".join(trace))
    return f"{':'.join(places[-1]) if places else ''} {trace[-1].strip()[:80]}"


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--keep", type=Path, help="a folder for inputs that broke something")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(
        json.dumps(fuzz(arguments.count, arguments.seed, arguments.keep, arguments.minutes), indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
