"""Times every pair of ranks: all of them in rounds, then the suspicious ones alone."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median_low

import torch
import torch.distributed as dist

from forkpoint.lab.collectives.links import REPEATS, Measure, Pair, PairTimes, choose_again, find_slow, rounds_of_pairs
from forkpoint.lab.collectives.report import Links
from forkpoint.lab.jobs.collectives.calls import Buffers, exchange, moved
from forkpoint.lab.jobs.collectives.worker import Board, Worker

_SMALL = 8
_WHILE_NS = 30_000_000
"""How long a pair is timed alone, at least: longer than a time slice of other work on a core."""
_LONGEST_NS = 20 * _WHILE_NS
_LEAST, _MOST = 4, 1000
Times = dict[str, list[list[int]]]
"""`0-5` -> nanoseconds of small and of large exchanges."""
Counts = dict[Pair, list[int]]
"""How many small and how many large exchanges a pair does."""


def time_pairs(worker: Worker, board: Board) -> Links:
    """Rank 0 gets all measurements; the others get none."""
    rounds = rounds_of_pairs(worker.world)
    all_alike = {pair: [worker.plan.iterations] * 2 for pairs in rounds for pair in pairs}
    links = Links(_time_rounds(worker, board, "pairs", rounds, all_alike))
    hosts = board.wait("host", range(worker.world), worker.plan.timeout)
    if worker.rank == 0:
        links = replace(links, again=choose_again(links.times, hosts))
    for number in range(REPEATS):
        if worker.rank == 0:
            board.post(f"again {number}", _write_counts(links, hosts))
        counts = _read_counts(board.wait(f"again {number}", [0], worker.plan.timeout))
        if not counts:
            break
        timed = _time_rounds(worker, board, f"alone {number}", [(pair,) for pair in counts], counts)
        links = replace(links, alone=(*links.alone, *timed))
    return links


def _write_counts(links: Links, hosts: Mapping[int, str]) -> str:
    """The pairs that are still suspicious, and those to compare them with; nothing when all are cleared."""
    slow = [slow.pair for slow in find_slow(links.again, links.alone, hosts)]
    left = slow if links.alone else links.again.suspicious
    chosen = sorted([*left, *links.again.controls]) if left else []
    fastest = {one.pair: [one.fastest(measure) for measure in Measure] for one in links.times}
    usual = [median_low(column) for column in zip(*fastest.values(), strict=True)]
    return json.dumps([[*pair, *map(_count, fastest[pair], usual)] for pair in chosen])


def _count(fastest_ns: int, usual_ns: int) -> int:
    """Enough for `_WHILE_NS`, but bounded, so that a really slow pair does not take forever."""
    return max(min(_WHILE_NS // usual_ns, _LONGEST_NS // fastest_ns, _MOST), _LEAST)


def _read_counts(told: Mapping[int, str]) -> Counts:
    if not told:
        raise TimeoutError("rank 0 did not say which pairs to time again")
    return {(one, other): counts for one, other, *counts in json.loads(told[0])}


def _time_rounds(
    worker: Worker, board: Board, what: str, rounds: Sequence[tuple[Pair, ...]], counts: Counts
) -> tuple[PairTimes, ...]:
    mine: Times = {}
    for number, pairs in enumerate(rounds):
        with worker.doing(f"{what}: round {number + 1} of {len(rounds)}"):
            dist.barrier()
            pair = next((pair for pair in pairs if worker.rank in pair), None)
            if pair is not None:
                mine[f"{pair[0]}-{pair[1]}"] = _time_pair(worker, sum(pair) - worker.rank, counts[pair])
    board.post(what, json.dumps(mine))
    if worker.rank:
        return ()
    told = board.wait(what, range(worker.world), worker.plan.timeout)
    by_rank = {rank: json.loads(text) for rank, text in told.items()}
    return _joined([pair for pairs in rounds for pair in pairs], by_rank)


def _time_pair(worker: Worker, peer: int, counts: Sequence[int]) -> list[list[int]]:
    group = dist.group.WORLD
    assert group is not None  # made at the start
    pause = worker.pause_before(peer)
    found: list[list[int]] = []
    for size, count in zip((_SMALL, worker.plan.pair_size), counts, strict=True):
        buffers = Buffers(torch.uint8, worker.device)
        put, out = buffers.of(moved(worker.rank, size, seed=0)), buffers.of(moved(peer, size, seed=1))
        times: list[int] = []
        for _ in range(count + 1):
            begun = time.perf_counter_ns()
            time.sleep(pause)
            exchange(put, peer, out, peer, group)
            worker.synchronise()
            times.append(time.perf_counter_ns() - begun)
        found.append(times[1:])  # the first exchange opens the connection
    return found


def _joined(pairs: Sequence[Pair], told: dict[int, Times]) -> tuple[PairTimes, ...]:
    """The longer of the two ends' times; a pair without times from both ends is left out."""
    found: list[PairTimes] = []
    for pair in pairs:
        name = f"{pair[0]}-{pair[1]}"
        ends = [told[rank][name] for rank in pair if name in told.get(rank, {})]
        if len(ends) == 2:
            small, large = (tuple(map(max, one, other)) for one, other in zip(*ends, strict=True))
            found.append(PairTimes(pair, small, large))
    return tuple(sorted(found, key=lambda times: times.pair))
