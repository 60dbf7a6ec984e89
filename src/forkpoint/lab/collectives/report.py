"""What ranks report to rank 0, as JSON, and the result that it makes of the reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

import msgspec

from forkpoint.lab.collectives.links import NONE_AGAIN, Again, Blame, Pair, PairTimes, blame, find_slow
from forkpoint.lab.collectives.plan import CollectivesPlan, Test

UNKNOWN = "?"
"""The host of a rank that did not report."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A buffer with wrong content."""

    rank: int
    kind: str
    dtype: str
    size: int
    """Bytes."""
    partition: str
    group: tuple[int, ...]
    element: int
    """The first that is wrong."""
    wrong: int
    of: int
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Span:
    """What a rank did when, by the clock of its host."""

    label: str
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class RankReport:
    """One rank's report. It grows while the rank works."""

    rank: int
    host: str
    device: str
    nic_mbps: int | None
    """Speed of the interface that sockets use, if its driver reports it."""
    checked: int = 0
    wrong: list[Wrong] = field(default_factory=list[Wrong])
    unsupported: dict[int, str] = field(default_factory=dict[int, str])
    """Test -> the backend's error."""
    times: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Test -> nanoseconds of each call."""
    choices: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """Test -> the algorithm and protocol that NCCL logged."""
    spans: list[Span] = field(default_factory=list[Span])
    at: str = "start"
    failed: str | None = None

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def read_report(text: str) -> RankReport:
    return msgspec.json.decode(text, type=RankReport)


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """How fast one collective was in one group."""

    kind: str
    dtype: str
    size: int
    partition: str
    group: tuple[int, ...]
    median_ns: int
    p95_ns: int
    alg_gbps: float
    """GB/s: bytes divided by the median time."""
    bus_gbps: float
    """The same times the factor of nccl-tests: what the busiest link carried."""
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    kind: str
    dtype: str
    why: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A rank that did not finish."""

    rank: int
    at: str
    why: str


@dataclass(frozen=True, slots=True)
class PairRow:
    pair: Pair
    small_ns: int
    large_ns: int
    gbps: float
    """Each way."""
    expected_gbps: float | None
    """Speed of the slower of the two network adapters; None: unknown, so pairs are only compared with each other."""


@dataclass(frozen=True, slots=True)
class CollectivesResult:
    backend: str
    torch: str
    world: int
    hosts: Mapping[int, str]
    tests: int
    checked: int
    """Buffers compared to the bit, over all ranks."""
    wrong: tuple[Wrong, ...]
    rows: tuple[SpeedRow, ...]
    unsupported: tuple[Unsupported, ...]
    pairs: tuple[PairRow, ...]
    blamed: tuple[Blame, ...]
    stopped: tuple[Stopped, ...]
    notes: tuple[str, ...]
    spans: Mapping[int, tuple[Span, ...]] = field(default_factory=dict[int, tuple[Span, ...]])

    @property
    def good(self) -> bool:
        return not (self.wrong or self.blamed or self.stopped)


@dataclass(frozen=True, slots=True)
class Links:
    """Times of the pairs."""

    times: tuple[PairTimes, ...] = ()
    again: Again = NONE_AGAIN
    alone: tuple[PairTimes, ...] = ()
    """Every repeat of every pair."""


@dataclass(frozen=True, slots=True)
class RanksHeard:
    """What rank 0 knows about all ranks."""

    reports: tuple[RankReport, ...]
    """From ranks that finished or failed."""
    hosts: Mapping[int, str]
    at: Mapping[int, str]
    """What each rank last began."""


def assemble(
    plan: CollectivesPlan, world: int, heard: RanksHeard, links: Links, *, backend: str, torch: str
) -> CollectivesResult:
    """A rank without a report counts as stopped."""
    tests = plan.tests(world)
    reports = heard.reports
    told = {report.rank: report for report in reports}
    hosts = {rank: heard.hosts.get(rank, UNKNOWN) for rank in range(world)}
    slow = find_slow(links.again, links.alone, hosts)
    left_out = {*links.again.left_out}
    return CollectivesResult(
        backend=backend,
        torch=torch,
        world=world,
        hosts=hosts,
        tests=len(tests),
        checked=sum(report.checked for report in reports),
        wrong=tuple(sorted((w for r in reports for w in r.wrong), key=lambda w: (w.kind, w.size, w.dtype, w.rank))),
        rows=tuple(row for test in tests if test.timed for row in _rows(test, told)),
        unsupported=_unsupported(tests, reports),
        pairs=tuple(_pair_row(one, plan, told) for one in links.times),
        blamed=blame(slow, [one.pair for one in links.times if one.pair not in left_out], hosts),
        stopped=tuple(sorted(_stopped(range(world), told, heard.at), key=lambda stop: (stop.rank in told, stop.rank))),
        notes=tuple(_notes(plan, links, hosts)),
        spans={report.rank: tuple(report.spans) for report in reports},
    )


def _rows(test: Test, told: Mapping[int, RankReport]) -> Iterable[SpeedRow]:
    for group in test.partition.groups:
        of_members = [told[rank].times.get(test.number, []) for rank in group if rank in told]
        if len(of_members) < len(group) or not all(of_members):
            continue
        calls = [max(call) for call in zip(*of_members, strict=True)]
        middle, size = median_low(calls), test.bytes_of(len(group)) if test.kind.bus else 0
        rate = size / max(middle, 1)
        bus = rate * test.kind.bus_factor(len(group))
        choices = dict.fromkeys(c for rank in group for c in told[rank].choices.get(test.number, []))
        yield SpeedRow(
            test.kind.name, test.dtype, size, test.partition.name, group, middle, _p95(calls), rate, bus, tuple(choices)
        )


def _p95(calls: Sequence[int]) -> int:
    """Nearest-rank percentile: of twenty calls the second slowest."""
    return sorted(calls)[max(-(-95 * len(calls) // 100) - 1, 0)]


def _unsupported(tests: Sequence[Test], reports: Sequence[RankReport]) -> tuple[Unsupported, ...]:
    found = {
        (tests[number].kind.name, tests[number].dtype): why
        for report in reports
        for number, why in report.unsupported.items()
    }
    return tuple(Unsupported(kind, dtype, why) for (kind, dtype), why in sorted(found.items()))


def _pair_row(one: PairTimes, plan: CollectivesPlan, told: Mapping[int, RankReport]) -> PairRow:
    ends = [told[rank] for rank in one.pair if rank in told]
    speeds = [end.nic_mbps for end in ends if end.nic_mbps]
    across = len({end.host for end in ends}) == 2
    large = median_low(one.large)
    return PairRow(
        pair=one.pair,
        small_ns=median_low(one.small),
        large_ns=large,
        gbps=plan.pair_size / max(large, 1),
        expected_gbps=min(speeds) / 8000 if across and len(speeds) == 2 else None,
    )


def _stopped(ranks: Iterable[int], told: Mapping[int, RankReport], at: Mapping[int, str]) -> Iterable[Stopped]:
    for rank in ranks:
        report = told.get(rank)
        if report is None:
            yield Stopped(
                rank,
                at.get(rank, "the start"),
                "it sent no report before the deadline: it ended, hangs, or cannot be reached",
            )
        elif report.failed is not None:
            yield Stopped(rank, report.at, report.failed)


def _notes(plan: CollectivesPlan, links: Links, hosts: Mapping[int, str]) -> Iterable[str]:
    if not plan.pairs:
        yield "pairs were not timed (--no-pairs): a slow link cannot be named"
    elif links.times and len(links.times) < 3:
        yield "fewer than three pairs: there is nothing to compare a link with"
    elif links.times:
        across = len({*hosts.values()}) > 1
        yield (
            "pairs are compared with the others of their class (on one host, across hosts)"
            + (" and, if its driver reports it, with the speed of the network adapter" if across else "")
            + ": what NVLink or PCIe should give here is not known"
        )
    cleared = len(links.again.suspicious) - len(find_slow(links.again, links.alone, hosts))
    if cleared:
        yield f"{cleared} more pairs were slow at first and not when timed again alone"
    if links.again.left_out:
        yield f"{len(links.again.left_out)} more pairs were slow at first, too many to time them all again"
