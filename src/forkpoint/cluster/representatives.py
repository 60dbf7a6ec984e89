"""The few full dumps that a verdict rests on, fetched from their nodes for a closer look."""

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from forkpoint.cluster.engines import Engine
from forkpoint.collect.call import CallFailed
from forkpoint.errors import InputError
from forkpoint.ingest.reading import Reading
from forkpoint.ingest.summary_file import add_summary
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Capture
from forkpoint.model.records import Record
from forkpoint.model.verdict import Verdict

AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Representative:
    rank: int
    file: str
    """NODE:PATH."""
    kept: str | None
    """The copy; None where there is none."""
    problem: str | None
    """Why there is none."""


def choose_ranks(verdict: Verdict) -> tuple[int, ...]:
    """Suspects first, then one rank of each cohort that has none yet, by rank."""
    chosen = list(verdict.suspects[:AT_MOST])
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    firsts = [min(cohort.ranks) for cohort in cohorts if cohort.ranks and not set(cohort.ranks) & set(chosen)]
    return tuple(dict.fromkeys([*chosen, *sorted(firsts)]))[:AT_MOST]


def records_of(summary: bytes, capture: Capture) -> dict[int, Record]:
    """The summary's record of each rank, from the dump that was diagnosed: there may be older ones."""
    reading = Reading()
    add_summary(io.BytesIO(summary), "summary", reading)
    used = {(trace.rank, trace.file) for trace in capture.traces}
    return {record.rank: record for record in reading.records if (record.rank, record.file) in used}


def fetch_representatives(
    verdict: Verdict, records: dict[int, Record], engine: Engine, nodes: Iterable[str], folder: Path
) -> tuple[Representative, ...]:
    """Into the folder, each checked against its summary: a dump that says something else is not kept."""
    known = tuple(nodes)
    ranks = [rank for rank in choose_ranks(verdict) if rank in records]
    return tuple(_fetch(records[rank], engine, known, folder) for rank in ranks)


def with_representatives(verdict: Verdict, fetched: Iterable[Representative]) -> Verdict:
    """The verdict, whose coverage says which dumps are here and which are not."""
    notes = tuple(
        f"the full dump of rank {one.rank} ({one.file}) is in {one.kept}"
        if one.kept
        else f"the full dump of rank {one.rank} ({one.file}) is not here: {one.problem}"
        for one in fetched
    )
    return replace(verdict, coverage=replace(verdict.coverage, notes=(*verdict.coverage.notes, *notes)))


def _fetch(record: Record, engine: Engine, nodes: tuple[str, ...], folder: Path) -> Representative:
    got = _read(record, engine, nodes)
    problem = got.why if isinstance(got, CallFailed) else _difference(record, got)
    if isinstance(got, CallFailed) or problem:
        return Representative(record.rank, record.file, None, clean(problem or ""))
    kept = folder / f"nccl_trace_rank_{record.rank}"
    kept.write_bytes(got)
    return Representative(record.rank, record.file, str(kept), None)


def _read(record: Record, engine: Engine, nodes: tuple[str, ...]) -> bytes | CallFailed:
    """A name is what some node wrote: it must be a path, of one of the nodes that were asked."""
    node = next((node for node in nodes if record.file.startswith(f"{node}:/")), None)
    path = record.file.removeprefix(f"{node}:")
    if node is None or "\n" in path or "\0" in path:
        return CallFailed("its name is not a path of a node that was asked")
    return engine.read_file(node, path)


def _difference(record: Record, data: bytes) -> str | None:
    again = Reading()
    try:
        again.add_dump(record.file, data)
    except InputError as error:
        return str(error).removeprefix(f"{record.file}: ")
    if [(one.rank, one.data) for one in again.records] != [(record.rank, record.data)]:
        return "it is no longer what was summarised; was it written again?"
    return None
