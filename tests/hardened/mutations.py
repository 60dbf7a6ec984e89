"""Captures with one or two files changed, made from those of recorded cases."""

import pickle
import random
import struct
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import Any

from forkpoint.evidence.summary_file import summarise
from ingest.encode import encode
from ingest.fuzz import MUTATIONS

CASES = Path(__file__).parents[2] / "cases"
MAX_BYTES = 100_000
"""Of a file that is mutated: small ones are read often."""
MAX_ENTRIES, MAX_TEXT = 8, 1500
"""Of a tiny capture's dumps and texts."""
PICKLE = b"\x80"
TEXTS = (".txt", ".log", ".jsonl")
NUMBERS = (0, 1, 2, 3, -1, -5, 7, 100, 127, 1 << 15, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
WORDS = ("", "0", "nccl:send 0->1", "nccl:recv 1<-0", "nccl:coalesced", "gloo:all_reduce", "default_pg", "[]", "[0]",
         "scheduled", "started", "completed", "nccl:all_to_all", "nccl:broadcast", "\u202e", "x" * 400)  # fmt: skip

Tree = Any
Files = dict[str, bytes]
"""By name."""


def seeds() -> list[Files]:
    """Small captures by file name; some as summaries."""
    found = []
    for folder in sorted(CASES.glob("[0-9]*/capture")):
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        if files and max(map(len, files.values())) < MAX_BYTES and len(files) <= 20:
            found.append(files)
    summarised = sorted(CASES.glob("[0-9]*/capture"))[::20]
    return [*found, *({"summary.fps": summarise([str(folder)])} for folder in summarised)]


def tiny(files: Files) -> Files:
    """The end of each file, where a job stopped: it is read in a tenth of the time."""
    return {name: _end_of_dump(data) if data[:1] == PICKLE else data[-MAX_TEXT:] if name.endswith(TEXTS) else data for name, data in files.items()}  # fmt: skip


def _end_of_dump(data: bytes) -> bytes:
    tree = _load(data)
    if tree is None:
        return data
    tree["entries"] = tree["entries"][-MAX_ENTRIES:]
    return _write(tree)


def some_of(chance: random.Random, files: Files) -> Files:
    """The dumps of two to four ranks, and little else."""
    dumps = [name for name in files if files[name][:1] == PICKLE]
    others = [name for name in files if name not in dumps]
    chosen = [*_sample(chance, dumps, chance.choice((2, 3, 4))), *_sample(chance, others, chance.choice((0, 1, 1, 2)))]
    return {name: files[name] for name in chosen or others}


def _sample(chance: random.Random, names: list[str], most: int) -> list[str]:
    return chance.sample(names, min(len(names), most))


def mutate(chance: random.Random, files: Files) -> Files:
    """One or two files are changed: bytes of any file, values inside a dump, records of a summary under a new seal."""
    changed = dict(files)
    for name in chance.sample(sorted(files), k=min(len(files), chance.choice([1, 1, 1, 2]))):
        data = changed[name]
        if name.endswith(".fps"):
            changed[name] = resealed(chance, data)
        elif data[:1] == PICKLE and chance.random() < 0.75:
            changed[name] = _other_values(chance, data)
        else:
            raw = bytearray(data)
            for change in chance.choices(MUTATIONS, k=chance.choice([1, 1, 2, 4])):
                if raw:
                    change(chance, raw)
            changed[name] = bytes(raw)
    return changed


def resealed(chance: random.Random, data: bytes) -> bytes:
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
    """A dump that is well formed and says other things."""
    tree = _load(data)
    if tree is None:
        return data
    for _ in range(chance.choice([1, 1, 2, 3, 10])):
        chance.choice(CHANGES)(chance, tree)
    return _write(tree)


def _load(data: bytes) -> Tree | None:
    """None: no dump as PyTorch writes it today. It is one of ours, so Python's own unpickler may read it."""
    tree: Tree = pickle.loads(data)
    return tree if isinstance(tree, dict) and isinstance(tree.get("entries"), list) else None


def _write(tree: Tree) -> bytes:
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
