"""The benchmark measures on dumps that PyTorch could have written."""

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import forkpoint
from bench.generate import Template, encode_dump
from bench.job import Group, Job, Place
from bench.pickler import Frame, Pickler
from looping import for_each

REAL = sorted((Path(forkpoint.__file__).parent / "demo").glob("nccl_trace_rank_*"))
JOB = Job(ranks=64, entries=2000)
ONE_OF_EACH_PLACE = [45, 41, 5, 0]


def with_frames(value: Any, frames: dict[int, Frame]) -> Any:
    if isinstance(value, list):
        return [with_frames(item, frames) for item in value]
    if isinstance(value, dict) and set(value) == {"name", "filename", "line"}:
        return frames.setdefault(id(value), Frame(**value))
    if isinstance(value, dict):
        return {key: with_frames(item, frames) for key, item in value.items()}
    return value


@for_each("path", REAL, ids=lambda path: path.name)
def test_a_real_dump_is_encoded_byte_for_byte(path: Path) -> None:
    loaded = pickle.loads(path.read_bytes())
    dump = with_frames(loaded, {})
    pickler = Pickler(entry["frames"] for entry in dump["entries"] if "frames" in entry)

    pickler.write(dump)

    assert pickler.finish() == path.read_bytes()


@cache
def dump_of(rank: int) -> dict[str, Any]:
    return pickle.loads(bytes(encode_dump(JOB, rank)[0].out))


def without_times(dump: dict[str, Any]) -> dict[str, Any]:
    entries = [{key: value for key, value in entry.items() if "time_" not in key} for entry in dump["entries"]]
    return dump | {"entries": entries}


def test_every_place_is_tried() -> None:
    assert [JOB.place(rank) for rank in ONE_OF_EACH_PLACE] == list(Place)


@for_each("rank", ONE_OF_EACH_PLACE)
def test_a_dump_from_a_template_is_the_dump_of_that_rank(rank: int) -> None:
    sibling = next(other for other in reversed(range(64)) if JOB.place(other) == JOB.place(rank))

    made = pickle.loads(Template.of(JOB, sibling).dump(JOB, rank))

    assert without_times(made) == without_times(dump_of(rank))


@for_each("rank", ONE_OF_EACH_PLACE)
def test_all_ring_buffers_are_full_and_wrapped(rank: int) -> None:
    entries = dump_of(rank)["entries"]

    assert len(entries) == 2000
    assert entries[0]["record_id"] > 0


def test_only_the_leaver_waits_for_nobody() -> None:
    leaver, *others = (dump_of(rank)["entries"] for rank in ONE_OF_EACH_PLACE)

    assert {entry["state"] for entry in leaver} == {"completed"}
    assert all(entries[-1]["state"] == "scheduled" for entries in others)
    assert all(entries[-1]["record_id"] - leaver[-1]["record_id"] == 60 for entries in others)


def test_who_shares_a_group_with_the_leaver_waits_first() -> None:
    assert min(JOB.reach.values()) == JOB.reach[Place.LEAVER]
    first = min(JOB.reach[place] for place in Place if place != Place.LEAVER)
    stuck = {place for place in Place if JOB.reach[place] == first}

    assert JOB.call(first).group in {Group.TP, Group.DP}
    assert stuck <= {Place.SAME_TP, Place.SAME_DP}
