"""The run as a trace for ui.perfetto.dev: a process per rank, a slice per test."""

from collections.abc import Iterator

from forkpoint.export.perfetto import Event, _named
from forkpoint.lab.collectives.report import CollectivesResult
from forkpoint.report.escape import ascii_json

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
