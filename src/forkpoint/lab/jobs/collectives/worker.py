"""One rank of `forkpoint lab collectives`: runs every test of the plan, times every pair of ranks, and reports through the store."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from forkpoint.doctor.checks.network import INTERFACES, read_interface, used_interfaces
from forkpoint.doctor.live import live_system
from forkpoint.doctor.system import System
from forkpoint.lab.collectives.links import REPEATS, Measure, Pair, PairTimes, choose_again, find_slow, rounds_of_pairs
from forkpoint.lab.collectives.plan import CollectivesPlan, Injected, Test
from forkpoint.lab.collectives.report import Links, RankReport, Span, Wrong
from forkpoint.lab.jobs.collectives.calls import (
    CALLS,
    Buffers,
    CollectiveCall,
    Make,
    Member,
    compare,
    exchange,
    flip_bit,
    lose_last,
    moved,
)

# ---------------------------------------------------------------------------------------------------------------------
# How ranks exchange measurements: through the rendezvous store, since the collectives are what is being tested.

_POLL_S = 0.05
_PREFIX = "forkpoint/collectives"


@dataclass(frozen=True, slots=True)
class Board:
    store: Store
    rank: int
    world: int

    def post(self, what: str, text: str) -> None:
        self.store.set(f"{_PREFIX}/{what}/{self.rank}", text)

    def read(self, what: str, rank: int) -> str | None:
        """None: nothing posted yet. Never blocks, so that other threads may use the store at the same time."""
        key = f"{_PREFIX}/{what}/{rank}"
        return self.store.get(key).decode() if self.store.check([key]) else None

    def wait(self, what: str, ranks: Sequence[int], seconds: float) -> dict[int, str]:
        """What these ranks posted, as soon as all have, or what is there when the time is up."""
        deadline = time.monotonic() + seconds
        missing, told = list(ranks), dict[int, str]()
        while missing:
            found = {rank: text for rank in missing if (text := self.read(what, rank)) is not None}
            told |= found
            missing = [rank for rank in missing if rank not in found]
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return told


# ---------------------------------------------------------------------------------------------------------------------
# Which algorithm and protocol NCCL logs for a collective (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING).

_CHOICE = re.compile(r"NCCL INFO (\w+): \d+ Bytes -> Algo (\w+) proto (\w+)")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""By the numbers that versions before 2.23 print."""


def read_choices(text: str) -> tuple[str, ...]:
    """`RING/LL` and the like, each once, in the order of the log. Only the first member of a communicator prints them."""
    found = (f"{_word(algo, _ALGORITHMS)}/{_word(proto, _PROTOCOLS)}" for _, algo, proto in _CHOICE.findall(text))
    return tuple(dict.fromkeys(found))


def _word(told: str, names: tuple[str, ...]) -> str:
    return names[int(told)] if told.isdecimal() and int(told) < len(names) else told


# ---------------------------------------------------------------------------------------------------------------------
# The speed of the network adapter that sockets of this machine use, if its driver reports it.


def adapter_mbps(system: System) -> int | None:
    """The fastest, if there are several."""
    interfaces = [read_interface(system, name) for name in system.names(INTERFACES)]
    return max(
        (one.speed for one in used_interfaces(system, interfaces) if one.speed and not one.loopback), default=None
    )


# ---------------------------------------------------------------------------------------------------------------------
# One rank: runs the tests in the same order as all ranks, and reports what it finds and where it is.

_NOT_THERE = (
    "invalid scalar type",
    "not support",
    "unsupported",
    "unconvertible",
    "not implemented",
    "does not implement",
)
"""Parts of backends' errors for what they do not support: raised on every rank, before anything is sent."""


class Worker:
    """Groups are made once; everything else is made for a test and dropped after it."""

    def __init__(self, plan: CollectivesPlan, board: Board, device: torch.device, log: Path | None) -> None:
        self.plan = plan
        self.board = board
        self.rank = board.rank
        self.world = board.world
        self.device = device
        self.tests = plan.tests(board.world)
        self.report = RankReport(board.rank, socket.gethostname(), device.type, adapter_mbps(live_system()))
        self.since = time.monotonic()
        """When the rank last made progress, for the watching thread."""
        self._log = log
        self._read = 0
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}

    def make_groups(self) -> None:
        """All ranks make all groups in the same order, as torch requires."""
        world = dist.group.WORLD
        assert world is not None  # made before
        for partition in self.plan.partitions(self.world):
            for ranks in partition.groups:
                if ranks not in self._groups:
                    self._groups[ranks] = world if len(ranks) == self.world else _new_group(ranks)

    def run_test(self, test: Test) -> None:
        ranks = test.partition.group_of(self.rank)
        if ranks is None:
            return
        member = Member(self._groups[ranks], ranks, ranks.index(self.rank))
        with self.doing(test.label):
            self._plant(test)
            try:
                self._check(test, member, seed=0)
            except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
                if not any(words in str(error).lower() for words in _NOT_THERE):
                    raise
                self.report.unsupported[test.number] = str(error).partition("\n")[0][:200]
                return
            if test.timed:
                self._time(test, member)
                self._check(test, member, seed=1)
        self.report.choices[test.number] = list(self._choices())

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        self.report.at, self.since = what, time.monotonic()
        self.board.post("at", what)
        begun = time.time_ns()
        if self.plan.nvtx and self.device.type == "cuda":
            torch.cuda.nvtx.range_push(what)
        yield
        if self.plan.nvtx and self.device.type == "cuda":
            torch.cuda.nvtx.range_pop()
        self.report.spans.append(Span(what, begun, time.time_ns()))

    def synchronise(self) -> None:
        """After every call. Also notes that the rank made progress."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.since = time.monotonic()

    def pause_before(self, peer: int) -> float:
        """Extra seconds of a planted slow link."""
        return sum(one.ms for one in self.plan.inject if {one.rank, one.peer} == {self.rank, peer}) / 1000

    def _call(self, test: Test, member: Member, seed: int) -> CollectiveCall:
        buffers = Buffers(getattr(torch, test.dtype), self.device)
        elements = test.elements(member.count) - (Injected("unequal", self.rank, test.kind.name) in self.plan.inject)
        return CALLS[test.kind.name](Make(member, elements, seed, buffers))

    def _check(self, test: Test, member: Member, seed: int) -> None:
        call = self._call(test, member, seed)
        before = [out.clone() for out in call.outputs]
        call.run()
        self.synchronise()
        if call.outputs and Injected("flip", self.rank, test.kind.name) in self.plan.inject:
            flip_bit(call.outputs[-1])
        if call.outputs and Injected("lost", self.rank, test.kind.name) in self.plan.inject:
            lose_last(call.outputs[-1], before[-1])
        self.report.checked += len(call.outputs)
        done = 0
        for out, expected in zip(call.outputs, call.expected, strict=True):
            self._compare(test, member, out, expected, done)
            done += out.numel()

    def _compare(self, test: Test, member: Member, out: torch.Tensor, expected: torch.Tensor, offset: int) -> None:
        """`offset`: elements of earlier outputs; the element is counted over all of them."""
        odd = compare(out, expected)
        if odd is None:
            return
        self.report.wrong.append(
            Wrong(
                rank=self.rank,
                kind=test.kind.name,
                dtype=test.dtype,
                size=test.bytes_of(member.count),
                partition=test.partition.name,
                group=member.ranks,
                element=offset + odd.element,
                wrong=odd.wrong,
                of=out.numel(),
                expected=odd.expected,
                got=odd.got,
            )
        )

    def _time(self, test: Test, member: Member) -> None:
        call = self._call(test, member, seed=0)
        call.run()  # the first call is slower than all others
        self.synchronise()
        times: list[int] = []
        for _ in range(self.plan.iterations):
            begun = time.perf_counter_ns()
            call.run()
            self.synchronise()
            times.append(time.perf_counter_ns() - begun)
        self.report.times[test.number] = times

    def _plant(self, test: Test) -> None:
        """A rank that dies or hangs does so in the middle of the tests."""
        if test.number != len(self.tests) // 2:
            return
        if Injected("die", self.rank) in self.plan.inject:
            os.kill(os.getpid(), signal.SIGKILL)
        while Injected("hang", self.rank) in self.plan.inject:
            time.sleep(1)

    def _choices(self) -> tuple[str, ...]:
        """What NCCL logged since the last time."""
        if self._log is None or not self._log.exists():
            return ()
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        self._read += len(text)
        return read_choices(text.decode(errors="replace"))


def _new_group(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    made = dist.new_group(list(ranks))
    return cast("dist.ProcessGroup", made)  # for ranks outside it a placeholder that is never used


# ---------------------------------------------------------------------------------------------------------------------
# Times every pair of ranks: all of them in rounds, then the suspicious ones alone.

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
