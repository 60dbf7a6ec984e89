"""Process groups that were taken down and made again in the same process: only the last generation counts."""

from forkpoint.model.records import TraceRecord
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.traces.dump import decode
from forkpoint.traces.summary import summarise
from ingest.encode import encode
from small_jobs import SmallJob


def dump(*worlds: dict[str, int]) -> bytes:
    """One rank's entries: in each world so many calls per group, and a new pg_id for every group."""
    entries: list[dict[str, object]] = []
    pg_id = 0
    for world in worlds:
        for name, calls in world.items():
            job = SmallJob(2, groups={"1": ("tp", (0, 1))})
            for _ in range(calls):
                job.op(group=name)
            entries += [entry | {"pg_id": pg_id} for entry in job.entries[0]]
            pg_id += 1
    for number, entry in enumerate(entries):
        entry["record_id"] = number
    return encode({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries})


def held(data: bytes) -> list[tuple[str, int]]:
    columns = decode(data, "dump")
    return [(columns.groups[g][0], int(pg_id)) for g, pg_id in zip(columns.group, columns.pg_id, strict=True)]


def test_calls_of_a_world_that_was_taken_down_are_left_out() -> None:
    assert held(dump({"0": 3, "1": 2}, {"0": 2, "1": 1})) == [("0", 2), ("0", 2), ("1", 3)]


def test_with_the_default_group_every_other_group_went_too() -> None:
    assert held(dump({"0": 1, "1": 2}, {"0": 2})) == [("0", 2), ("0", 2)]


def test_a_group_that_only_the_first_world_used_leaves_no_trace() -> None:
    tables = SharedTables()
    record = TraceRecord(0, "dump", summarise(decode(dump({"0": 1, "1": 2}, {"0": 2}), "dump"), 0, tables))
    (trace,) = Traces.of([record], tables)

    assert [(group.name, group.collectives.count) for group in trace.groups if group.collectives] == [("0", 2)]


def test_groups_of_one_world_all_count() -> None:
    assert held(dump({"0": 2, "1": 2})) == [("0", 0), ("0", 0), ("1", 1), ("1", 1)]
