"""What the HTML report of a large job costs: `python -m bench.page`. CPU seconds, peak memory and bytes.

The job is the one of `bench.job`, as forkpoint holds it after reading: writing and reading 10,000 dumps is measured by
`bench.run`, on fewer ranks.
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bench.generate import _DESC, _START_NS, encode_dump
from bench.job import Job, Place
from forkpoint.model.capture import Capture
from forkpoint.model.op import Frame, Ints, Signature
from forkpoint.model.records import GROUP, HEAD, TraceRecord, parts_of
from forkpoint.model.tables import SharedTables
from forkpoint.model.traces import Traces
from forkpoint.model.world import RankPlace as Machine
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json
from forkpoint.report.page import render_html
from forkpoint.report.page_data import encode
from forkpoint.traces.columns import DumpColumns, DumpHeader, GroupConfig, GroupStatus
from forkpoint.traces.dump import decode
from forkpoint.traces.summary import summarise

_T = TypeVar("_T")
_GPUS = 8


def big_capture(ranks: int, entries: int) -> Capture:
    """As read from one dump per rank. Ranks of one place recorded the same, so one dump of each place is decoded."""
    job = Job(ranks, entries)
    tables = SharedTables()
    templates: dict[Place, bytes] = {}
    members: dict[str, int] = {}
    records: list[TraceRecord] = []
    for rank in range(ranks):
        place = job.place(rank)
        if place not in templates:
            columns = decode(bytes(encode_dump(job, rank)[0].out), f"nccl_trace_rank_{rank}")
            templates[place] = summarise(columns, rank, tables)
        data = _as_rank(templates[place], rank, job, members, tables)
        records.append(TraceRecord(rank, f"nccl_trace_rank_{rank}", data))
    return Capture(Traces.of(records, tables), tables.build(), places=_machines(ranks))


def _as_rank(template: bytes, rank: int, job: Job, members: dict[str, int], tables: SharedTables) -> bytes:
    """The record with the names and members of this rank's groups in it."""
    data = bytearray(template)
    for at, head in parts_of(template).groups:
        group = next(g for g, desc in _DESC.items() if desc == tables.text(head.desc))
        name = job.group_name(rank, group)
        if name not in members:
            members[name] = tables.members_key(tuple(job.members(rank, group)))
        own = head._replace(name=tables.text_key(name), members=members[name])
        GROUP.pack_into(data, at - GROUP.size, own)
    HEAD.pack_into(data, 0, HEAD.read(template)._replace(world=members["0"]))
    return bytes(data)


def flat_capture(ranks: int, entries: int) -> Capture:
    """One group of all ranks, the widest heat map there is. Every buffer begins elsewhere, as where ranks differ in their
    other groups, so that no two neighbours share a row; one rank came no further than 97 %.
    """
    tables = SharedTables()
    world = tuple(range(ranks))
    behind, end = ranks * 5 // 7, 100 * entries
    records: list[TraceRecord] = []
    for rank in world:
        done = end - entries * 3 // 100
        seqs = np.arange(end - entries + 1 + rank % 97, (done if rank == behind else end) + 1)
        records.append(
            TraceRecord(rank, f"nccl_trace_rank_{rank}", summarise(_flat_dump(seqs, done, world), rank, tables))
        )
    return Capture(Traces.of(records, tables), tables.build(), places=_machines(ranks))


def _flat_dump(seqs: Ints, done: int, world: tuple[int, ...]) -> DumpColumns:
    signature = Signature("nccl", "all_reduce", None, ((4096,),), ("Float",), ((4096,),), ("Float",))
    stack = (Frame("train_step", "/srv/trainer/train.py", 402), Frame("<module>", "/srv/trainer/train.py", 640))
    status = {0: GroupStatus(int(seqs[-1]), -1, min(done, int(seqs[-1])))}
    zeros, is_done = np.zeros(len(seqs), np.int64), seqs <= done
    return DumpColumns(
        header=DumpHeader("2.10", None, (GroupConfig("0", "default_pg", world),), status, None, None),
        groups=(("0", "default_pg"),),
        signatures=(signature,),
        stacks=(stack,),
        threads=("main",),
        group=zeros,
        signature=zeros,
        stack=zeros,
        thread=zeros,
        pg_id=zeros,
        record_id=seqs,
        collective_seq=seqs,
        p2p_seq=zeros,
        op_id=zeros,
        is_p2p=zeros.astype(np.bool_),
        state=np.where(is_done, 2, 0).astype(np.uint8),
        retired=is_done,
        created_ns=_START_NS + seqs,
        started_ns=zeros,
        completed_ns=zeros,
        timeout_ms=zeros + 600_000,
    )


def _machines(ranks: int) -> tuple[Machine, ...]:
    return tuple(
        Machine(rank, f"node-{rank // _GPUS:04}", rank % _GPUS, "", f"log_{rank}.txt", 1) for rank in range(ranks)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=2000)
    args = parser.parse_args()
    for name, make in (("3-D job", big_capture), ("one group", flat_capture)):
        print(f"{name}, {args.ranks:,} ranks x {args.entries:,} entries")
        _measure(make(args.ranks, args.entries))


def _measure(capture: Capture) -> None:
    print(f"  as read: peak {_peak_mb():.0f} MB")
    plain_s, _ = _timed(lambda: diagnose(capture))
    print(f"  diagnose: {plain_s:.1f} s CPU, peak {_peak_mb():.0f} MB")
    both_s, verdict = _timed(lambda: diagnose(capture, picture=True))
    picture = verdict.picture
    assert picture is not None  # it was asked for
    print(f"  draw: {both_s - plain_s:.1f} s CPU, peak {_peak_mb():.0f} MB, {len(picture.groups)} groups")
    packed_s, packed = _timed(lambda: encode(picture))
    print(f"  encode: {packed_s:.1f} s CPU, peak {_peak_mb():.0f} MB, {len(packed):,} bytes")
    page_s, page = _timed(lambda: render_html(verdict))
    print(f"  page: {page_s:.1f} s CPU, peak {_peak_mb():.0f} MB, {len(page.encode()):,} bytes")
    print(f"  (--json: {len(render_json(verdict)):,} bytes)", flush=True)


def _timed(work: Callable[[], _T]) -> tuple[float, _T]:
    start = time.process_time()
    done = work()
    return time.process_time() - start, done


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    main()
