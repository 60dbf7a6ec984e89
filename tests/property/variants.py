"""What happens to evidence on its way to us: files lost, cut, trimmed, emptied, taken early, clocks that differ.

A variant is a copy of a case's capture with such damage, chosen by a seed. Dumps are rewritten as torch would have written
them: a dump taken earlier holds neither later ops nor later completions, and its counters say so.
"""

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkpoint.errors import UnreadableInput
from forkpoint.traces.pickles import Machine

Dump = dict[str, Any]
Entry = dict[str, Any]

_NS = 10**9
_PICKLE = b"\x80"
_NAMES = (
    "{}",
    "comm_lib_trace_rank_{}",
    "rank-{}.bin",
    "job_rank0_hang/_dump_{}",
    "2026-11-16 run/rank_{}",
    "node07/{}.pkl",
)


@dataclass(frozen=True, slots=True)
class Damage:
    """What a seed chose."""

    lost: frozenset[str]
    """Files that did not arrive."""
    cut: dict[str, float]
    """Files of which only this share arrived."""
    dumps: dict[str, tuple[str, ...]]
    """What happened to each dump before it was written: `early`, `late clock`, `active only`, `no stacks`, `empty`."""
    renamed: str | None
    """How dumps were called, where somebody renamed them."""

    def __str__(self) -> str:
        changed = [f"{name}: {', '.join(how)}" for name, how in sorted(self.dumps.items()) if how]
        cut = [f"{name} to {share:.0%}" for name, share in sorted(self.cut.items())]
        return f"lost {sorted(self.lost)}; cut {cut}; changed {changed}; renamed {self.renamed}"


def choose_damage(files: list[str], dumps: frozenset[str], rng: random.Random) -> Damage:
    """`files`: all names of a capture, `dumps` among them."""
    lost = _choose_lost(files, dumps, rng)
    left = [name for name in files if name not in lost]
    cut = {name: rng.uniform(0.02, 0.98) for name in left if rng.random() < rng.choice((0, 0, 0.15))}
    shares = {"early": 0.25, "late clock": 0.25, "active only": 0.2, "empty": 0.1}
    chosen = {
        how: rng.choice((0.0, 0.0, share, 1.0 if how == "active only" else share)) for how, share in shares.items()
    }
    chosen["no stacks"] = rng.choice((0.0, 0.0, 0.0, 1.0))  # of one dump alone they are missing where the GIL was held
    changed = {
        name: tuple(how for how, share in chosen.items() if rng.random() < share) for name in sorted(dumps - lost)
    }
    return Damage(frozenset(lost), cut, changed, rng.choice((None, None, *_NAMES[1:])))


def _choose_lost(files: list[str], dumps: frozenset[str], rng: random.Random) -> set[str]:
    """Single files, a share of all, or all of one kind."""
    how = rng.choice(("none", "few", "few", "some", "half", "kind"))
    if how == "few":
        return set(rng.sample(files, min(len(files) - 1, rng.randint(1, 3))))
    if how in ("some", "half"):
        share = 0.25 if how == "some" else 0.5
        return {name for name in files if rng.random() < share}
    if how == "kind":
        kept = rng.choice(("dumps", "texts"))
        return {name for name in files if (name in dumps) != (kept == "dumps") or rng.random() < 0.2}
    return set()


def write_variant(capture: Path, folder: Path, rng: random.Random) -> tuple[Damage, list[str]]:
    """A damaged copy of a capture; the damage, and the paths to read."""
    contents = {str(p.relative_to(capture)): p.read_bytes() for p in sorted(capture.rglob("*")) if p.is_file()}
    dumps = frozenset(name for name, data in contents.items() if data.startswith(_PICKLE))
    damage = choose_damage(sorted(contents), dumps, rng)
    began = _hang_began([contents[name] for name in dumps])
    paths: list[str] = []
    for name in sorted(contents.keys() - damage.lost):
        data = contents[name]
        if name in dumps and damage.dumps[name]:
            data = _rewrite(data, damage.dumps[name], began, rng)
        data = data[: int(len(data) * damage.cut.get(name, 1))]
        target = folder / _called(name, damage.renamed if name in dumps else None)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        paths.append(str(target))
    return damage, paths


def _called(name: str, renamed: str | None) -> str:
    number = name.rsplit("_", 1)[-1]
    return renamed.format(number) if renamed and number.isdigit() else name


def load_dump(data: bytes) -> Dump | None:
    """None: not a dict, as torch 2.2 wrote; or cut before it came to us."""
    machine = Machine(data)
    machine.pause_depth = -1
    try:
        machine.run()
    except UnreadableInput:
        return None
    return machine.root if isinstance(machine.root, dict) else None


def _hang_began(dumps: list[bytes]) -> int:
    """When the last op was issued: from then on nothing moves."""
    entries = [e for data in dumps if (dump := load_dump(data)) for e in dump.get("entries", ())]
    return max((e.get("time_created_ns") or 0 for e in entries), default=0)


def _rewrite(data: bytes, how: tuple[str, ...], began: int, rng: random.Random) -> bytes:
    dump = load_dump(data)
    if dump is None or "entries" not in dump:
        return data
    for step in how:
        dump = _STEPS[step](dump, began, rng)
    return pickle.dumps(dump, protocol=2)


def _early(dump: Dump, began: int, rng: random.Random) -> Dump:
    """Taken when the job hung, but up to a timeout before the watchdog would have done it."""
    if any(e.get("time_discovered_started_ns") for e in dump["entries"]):
        return dump  # when a start was noticed does not tell when it was
    timeout_ms = max((e.get("timeout_ms") or 0 for e in dump["entries"]), default=0)
    when = began + int(rng.random() * timeout_ms * 1_000_000)
    kept = [_as_of(e, when) for e in dump["entries"] if e["time_created_ns"] <= when]
    return {**dump, "entries": kept, "pg_status": _status_of(dump, kept)}


def _as_of(entry: Entry, when: int) -> Entry:
    """An op as it was then. gloo's never leave `scheduled`: they are retired when they are done."""
    done = entry.get("time_discovered_completed_ns")
    if not done or done <= when:
        return entry
    return {**entry, "time_discovered_completed_ns": None, "state": "scheduled", "retired": False}


def _status_of(dump: Dump, entries: list[Entry]) -> Dump:
    """Counters that go with these entries; a group without any is as far as it was where nothing of it was taken away."""
    found: Dump = {}
    for key, status in dump.get("pg_status", {}).items():
        before = [e for e in dump["entries"] if str(e["pg_id"]) == str(key)]
        now = [e for e in entries if str(e["pg_id"]) == str(key)]
        if len(now) == len(before) and now == before:
            found[key] = status
            continue
        done = [_seq(e) for e in now if e["retired"]]
        found[key] = {
            "last_enqueued_collective": max((_seq(e) for e in now), default=-1),
            "last_started_collective": -1,
            "last_completed_collective": max(done, default=-1),
        }
    return found


def _seq(entry: Entry) -> int:
    return entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]


def _late_clock(dump: Dump, _began: int, rng: random.Random) -> Dump:
    """Its host's clock is off: mostly by less than a second, sometimes by minutes."""
    off = int(rng.choice((0.3, 1.0, 5.0, 300.0)) * rng.uniform(-1, 1) * _NS)
    moved = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    entries = [{**e, **{key: e[key] + off for key in moved if e.get(key)}} for e in dump["entries"]]
    return {**dump, "entries": entries}


def _active_only(dump: Dump, _began: int, _rng: random.Random) -> Dump:
    """As with TORCH_INCLUDE_ONLY_ACTIVE=1 or over HTTP: nothing that is done."""
    kept = [e for e in dump["entries"] if not (e["retired"] or e["state"] == "completed")]
    return {**dump, "entries": kept}


def _no_stacks(dump: Dump, _began: int, _rng: random.Random) -> Dump:
    return {**dump, "entries": [{k: v for k, v in e.items() if k != "frames"} for e in dump["entries"]]}


def _empty(dump: Dump, _began: int, _rng: random.Random) -> Dump:
    """A recorder that was off: the counters are kept elsewhere."""
    return {**dump, "entries": []}


_STEPS: dict[str, Callable[[Dump, int, random.Random], Dump]] = {
    "early": _early,
    "late clock": _late_clock,
    "active only": _active_only,
    "no stacks": _no_stacks,
    "empty": _empty,
}
