"""What the HTML report of a large job costs: `python -m bench.page`. CPU seconds, peak memory and bytes.

The job is the one of `bench.job`, as forkpoint holds it after reading: writing and reading 10,000 dumps is measured by
`bench.run`, on fewer ranks.
"""

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from bench.generate import _DESC, _START_NS, encode_dump
from bench.job import Job, Place
from forkpoint.ingest.flight_recorder import decode
from forkpoint.ingest.flight_recorder.summary import summarise
from forkpoint.model.capture import Capture
from forkpoint.model.op import Frame, Op, OpState, Signature
from forkpoint.model.trace import BLOCK, RECENT, Block, Ints, ReadGroup, ReadTrace, ReadTrack
from forkpoint.model.world import Place as Machine
from forkpoint.packed.tables import SharedTables
from forkpoint.packed.traces import pack_traces
from forkpoint.pipeline import diagnose
from forkpoint.report.html import encode, render_html
from forkpoint.report.json_report import render_json

_T = TypeVar("_T")
_GPUS = 8


def big_capture(ranks: int, entries: int) -> Capture:
    """As read from one dump per rank. Ranks of one place recorded the same, so one dump of each place is decoded."""
    job = Job(ranks, entries)
    tables = SharedTables()
    templates: dict[Place, ReadTrace] = {}
    members: dict[str, tuple[int, ...]] = {}
    traces: list[ReadTrace] = []
    for rank in range(ranks):
        place = job.place(rank)
        if place not in templates:
            file = f"nccl_trace_rank_{rank}"
            templates[place] = summarise(decode(bytes(encode_dump(job, rank)[0].out), file), rank, file, tables)
        traces.append(_as_rank(templates[place], rank, job, members))
    return Capture(pack_traces(traces, tables), tables.build(), places=_machines(ranks))


def _as_rank(template: ReadTrace, rank: int, job: Job, members: dict[str, tuple[int, ...]]) -> ReadTrace:
    groups: list[ReadGroup] = []
    for trace in template.groups:
        group = next(g for g, desc in _DESC.items() if desc == trace.desc)
        name = job.group_name(rank, group)
        held = members.setdefault(name, tuple(job.members(rank, group)))
        track = trace.collectives
        groups.append(replace(trace, name=name, members=held, collectives=track and _as_track(track, rank)))
    return replace(template, rank=rank, file=f"nccl_trace_rank_{rank}", world=members["0"], groups=tuple(groups))


def _as_track(track: ReadTrack, rank: int) -> ReadTrack:
    done, active, last = (op and replace(op, rank=rank) for op in (track.last_done, track.first_active, track.last))
    assert last is not None  # a track has a last op
    return replace(track, last_done=done, first_active=active, last=last)


def flat_capture(ranks: int, entries: int) -> Capture:
    """One group of all ranks, the widest heat map there is. Every buffer begins elsewhere, as where ranks differ in their
    other groups, so that no two neighbours share a row; one rank came no further than 97 %.
    """
    signature = Signature("nccl", "all_reduce", None, ((4096,),), ("Float",), ((4096,),), ("Float",))
    stack = (Frame("train_step", "/srv/trainer/train.py", 402), Frame("<module>", "/srv/trainer/train.py", 640))
    tables = SharedTables()
    tokens = tables.match(signature), tables.stack(stack)
    world = tuple(range(ranks))
    behind, end = ranks * 5 // 7, 100 * entries
    traces: list[ReadTrace] = []
    for rank in world:
        last = end - entries * 3 // 100 if rank == behind else end
        seqs = np.arange(end - entries + 1 + rank % 97, last + 1)
        done = last if rank == behind else end - entries * 3 // 100
        op = Op(
            rank, 0, 0, 0, (signature,), OpState.COMPLETED, rank == behind, _START_NS, None, 0, 600_000, stack, "main"
        )
        track = _flat_track(seqs, done, op, tokens, tables)
        group = ReadGroup("0", "default_pg", world, track, None, last, done)
        traces.append(_flat_trace(rank, group, world, entries))
    return Capture(pack_traces(traces, tables), tables.build(), places=_machines(ranks))


def _flat_track(seqs: Ints, done: int, op: Op, tokens: tuple[int, int], tables: SharedTables) -> ReadTrack:
    parts = np.split(seqs, np.flatnonzero(np.diff(seqs // BLOCK)) + 1)
    match, stack = (np.full(len(seqs), token, np.uint64) for token in tokens)
    blocks = tuple(tables.block(Block(p, match[: len(p)], stack[: len(p)], np.zeros(len(p), np.int64))) for p in parts)
    last = int(seqs[-1])
    pending = replace(op, state=OpState.SCHEDULED, retired=False)
    return ReadTrack(
        count=len(seqs),
        first_seq=int(seqs[0]),
        last_seq=last,
        from_start=False,
        blocks=blocks,
        last_done=replace(op, seq=done),
        first_active=replace(pending, seq=done + 1) if last > done else None,
        last=replace(pending if last > done else op, seq=last),
        recent_seqs=seqs[-RECENT:],
        recent_created_ns=_START_NS + seqs[-RECENT:],
        longest_pause_seq=last,
        longest_pause_ns=0,
    )


def _flat_trace(rank: int, group: ReadGroup, world: tuple[int, ...], entries: int) -> ReadTrace:
    none, no_tokens = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return ReadTrace(
        rank=rank,
        file=f"nccl_trace_rank_{rank}",
        schema="2.10",
        comm_lib="nccl",
        entries=entries,
        cut=None,
        world=world,
        world_is_guess=False,
        groups=(group,),
        channels=(),
        from_start=False,
        first_ns=_START_NS,
        last_ns=_START_NS,
        script=None,
        has_stacks=True,
        timed=False,
        is_partial=False,
        has_counters=False,
        recent_records=none,
        recent_groups=none,
        recent_matches=no_tokens,
        recent_ops=no_tokens,
        recent_stacks=no_tokens,
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
