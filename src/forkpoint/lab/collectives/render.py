"""A result as a page of text, as JSON (schema forkpoint.collectives/1), and as a trace for ui.perfetto.dev."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median_low
from typing import Any

from forkpoint.lab.collectives.links import Blame, Measure, Part, SlowPair
from forkpoint.lab.collectives.report import UNKNOWN, CollectivesResult, PairRow, SpeedRow, Wrong
from forkpoint.lab.record import _table
from forkpoint.model.world import format_ranks, name_ranks
from forkpoint.report.escape import ascii_json, escape
from forkpoint.report.perfetto import Event, _named

# ---------------------------------------------------------------------------------------------------------------------
# As a page of text, and as JSON.

SCHEMA = "forkpoint.collectives/1"
_MOST_WRONG = 20
_MOST_PAIRS = 5
_PARTS = {
    Part.LINK: "the link between ranks {name}",
    Part.RANK: "{name}: its GPU, its process or the way to it",
    Part.HOST: "host {name}: its adapter, cable or switch port",
    Part.HOSTS: "the way between hosts {name}",
}


def result_json(result: CollectivesResult) -> str:
    told: dict[str, Any] = asdict(result)
    del told["spans"]
    told["hosts"] = {str(rank): host for rank, host in result.hosts.items()}
    told["blamed"] = [_blamed(one) for one in result.blamed]
    return json.dumps({"schema": SCHEMA, "good": result.good, **told}, indent=2)


def _blamed(one: Blame) -> dict[str, object]:
    pairs = [{**asdict(slow), "factor": round(slow.factor, 1)} for slow in one.pairs]
    return {"part": one.part, "name": one.name, "ranks": one.ranks, "pairs": pairs, "why": one.why}


def result_text(result: CollectivesResult) -> str:
    hosts = len({*result.hosts.values()} - {UNKNOWN})
    where = f"{result.world} ranks on {hosts} host{'s' * (hosts != 1)}, {result.backend}, torch {result.torch}"
    parts = [
        f"{where}: {result.tests} tests, {result.checked} buffers compared to the bit",
        *_about_data(result),
        *_about_speed(result),
        *_about_pairs(result),
        *(f"note: {escape(note)}" for note in result.notes),
    ]
    return "\n".join(parts)


def _about_data(result: CollectivesResult) -> Iterator[str]:
    for stop in result.stopped:
        yield f"rank {stop.rank} did not finish, in {escape(stop.at)}: {escape(stop.why)}"
    if not result.wrong:
        yield "data: nothing wrong" + (" up to there" if result.stopped else "")
    ranks = sorted({wrong.rank for wrong in result.wrong})
    if result.wrong:
        yield f"data: WRONG in {len(result.wrong)} buffers of {name_ranks(ranks)}"
    yield from (f"  {_wrong(wrong)}" for wrong in result.wrong[:_MOST_WRONG])
    if len(result.wrong) > _MOST_WRONG:
        yield f"  and {len(result.wrong) - _MOST_WRONG} more (--json has them all)"
    if result.unsupported:
        names = ", ".join(f"{one.kind} {one.dtype}" for one in result.unsupported)
        yield f"not tried, {result.backend} does not support it: {names}"


def _wrong(wrong: Wrong) -> str:
    return (
        f"rank {wrong.rank}: {wrong.kind} {wrong.dtype} {wrong.size} B over {escape(wrong.partition)} "
        f"({format_ranks(wrong.group)}): element {wrong.element} is {wrong.got}, must be {wrong.expected}; "
        f"{wrong.wrong} of {wrong.of} wrong"
    )


def _about_speed(result: CollectivesResult) -> Iterator[str]:
    rows = [_speed(of_groups) for of_groups in _by_test(result.rows)]
    if rows:
        heads = ("collective", "over", "bytes", "median us", "p95 us", "alg GB/s", "bus GB/s", "NCCL's choice")
        yield "\n" + _table([heads, *rows]) + "\n"


def _by_test(rows: Sequence[SpeedRow]) -> Iterator[list[SpeedRow]]:
    found: dict[tuple[str, str, int], list[SpeedRow]] = {}
    for row in rows:
        found.setdefault((row.partition, row.kind, row.size), []).append(row)
    yield from found.values()


def _speed(rows: Sequence[SpeedRow]) -> tuple[str, ...]:
    """The median group of those that ran the same test, and the worst p95 of all."""
    middle = min(rows, key=lambda row: abs(row.median_ns - median_low([r.median_ns for r in rows])))
    return (
        middle.kind,
        escape(middle.partition),
        str(middle.size),
        f"{middle.median_ns / 1000:.0f}",
        f"{max(row.p95_ns for row in rows) / 1000:.0f}",
        f"{middle.alg_gbps:.3f}",
        f"{middle.bus_gbps:.3f}",
        escape(", ".join(dict.fromkeys(choice for row in rows for choice in row.choices))) or "-",
    )


def _about_pairs(result: CollectivesResult) -> Iterator[str]:
    if not result.pairs:
        return
    yield f"pairs: {len(result.pairs)} timed{'' if result.blamed else ', none slower than the others'}"
    for one in result.blamed:
        yield f"SLOW: {_PARTS[one.part].format(name=escape(one.name))} ({one.why})"
        yield from (f"  {_slow(slow)}" for slow in one.pairs[:_MOST_PAIRS])
        if len(one.pairs) > _MOST_PAIRS:
            yield f"  and {len(one.pairs) - _MOST_PAIRS} more pairs"
    fastest, slowest = (choose(result.pairs, key=lambda row: row.large_ns) for choose in (min, max))
    yield f"  fastest {_pair(fastest)}; slowest {_pair(slowest)}"


def _slow(slow: SlowPair) -> str:
    what = "8 bytes" if slow.measure is Measure.SMALL else "the large message"
    times = f"{slow.alone_ns / 1000:.0f} us, others alone {slow.usual_ns / 1000:.0f} us"
    return f"ranks {slow.pair[0]} and {slow.pair[1]}: {what} takes {times}: {slow.factor:.1f} times as long"


def _pair(row: PairRow) -> str:
    of = f" of {row.expected_gbps:.1f} that the adapters have" if row.expected_gbps else ""
    return f"{row.pair[0]}-{row.pair[1]} {row.large_ns / 1000:.0f} us ({row.gbps:.3f} GB/s each way{of})"


# ---------------------------------------------------------------------------------------------------------------------
# The run as a trace for ui.perfetto.dev: a process per rank, a slice per test.

_NS_PER_US = 1000


def export_result(result: CollectivesResult) -> Iterator[str]:
    zero = min((span.begin_ns for spans in result.spans.values() for span in spans), default=0)
    yield '{"displayTimeUnit": "ms", "traceEvents": ['
    before = "\n"
    for event in _events(result, zero):
        yield f"{before}{ascii_json(event)}"
        before = ",\n"
    yield '\n],\n"otherData": {"clock": "each rank\'s times are by the clock of its own host"}}\n'


def _events(result: CollectivesResult, zero: int) -> Iterator[Event]:
    for rank, spans in sorted(result.spans.items()):
        yield _named("process_name", rank, name=f"rank {rank} on {result.hosts[rank]}")
        yield _named("process_sort_index", rank, sort_index=rank)
        for span in spans:
            yield {
                "ph": "X",
                "cat": "test",
                "name": span.label,
                "pid": rank,
                "tid": 0,
                "ts": (span.begin_ns - zero) / _NS_PER_US,
                "dur": (span.end_ns - span.begin_ns) / _NS_PER_US,
            }
