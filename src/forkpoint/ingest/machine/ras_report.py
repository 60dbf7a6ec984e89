"""What NCCL's RAS network knew when it was asked. Its ranks are ranks inside a communicator: `group_rank`.

Counts are of launches, so ranks that all wait in one collective look equal, and counts that differ mean something only
if a second report shows that they do not move.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RasProcess:
    host: str | None
    """An address, as RAS prints it."""
    pid: int | None
    gpus: tuple[int, ...]
    """As CUDA numbers them in that process."""
    nvml_gpus: tuple[int, ...]
    """As NVML numbers them; the same where RAS prints only one number."""


@dataclass(frozen=True, slots=True)
class RasRank:
    group_rank: int
    process: RasProcess | None


@dataclass(frozen=True, slots=True)
class RasCount:
    """Ranks of a communicator that launched equally many operations of one kind."""

    operation: str | None
    """`AllReduce`; None before NCCL 2.26, which counts all collectives together."""
    launched: int
    total: int
    """How many ranks."""
    ranks: tuple[RasRank, ...]
    """Those that are named. Text names only outliers, so this may be fewer than `total`."""
    line: int


@dataclass(frozen=True, slots=True)
class RasRemark:
    """Ranks of a communicator that report the same status, where statuses differ, or the same error."""

    text: str
    total: int
    ranks: tuple[RasRank, ...]
    line: int


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    hash: str
    """Sixteen hexadecimal digits, as `commId` in NCCL's own lines."""
    size: int | None
    counts: tuple[RasCount, ...]
    """Only of operations in which the ranks differ."""
    missing_total: int
    missing: tuple[RasRank, ...]
    """Ranks that did not answer, those that are named."""
    remarks: tuple[RasRemark, ...]
    line: int


@dataclass(frozen=True, slots=True)
class RasEvent:
    """From `ncclras -m`."""

    name: str
    """`PEER_DEAD`, `PEER_UNRESPONSIVE`, `PEER_RECOVERED`..."""
    when: str
    process: RasProcess | None
    line: int


@dataclass(frozen=True, slots=True)
class RasReport:
    file: str
    line: int
    version: str | None
    when: str | None
    communicators: tuple[RasCommunicator, ...]
    """Those about which something was said; in JSON all."""
    dead: tuple[RasProcess, ...]
    """Not reached for 60 seconds."""
    unreachable: tuple[RasProcess, ...]
    """Did not answer this query: stopped, busy, or dead without RAS knowing yet."""
    timeouts: int | None
    events: tuple[RasEvent, ...]
    cut: bool
    """The end is missing: what is not here may still have been so."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Ranks of a communicator that launched fewer operations than others."""

    communicator: RasCommunicator
    operation: str | None
    launched: int
    most: int
    """What the foremost launched."""
    total: int
    group_ranks: tuple[int, ...]
    """As far as they are known: all, or those that are named."""


def find_behind(communicator: RasCommunicator) -> tuple[Behind, ...]:
    """The furthest behind first. Where RAS names only the others (it names the fewer, which may be those ahead), the ranks
    are what is left of the communicator, if all of it is accounted for.
    """
    found: list[Behind] = []
    for operation in dict.fromkeys(count.operation for count in communicator.counts):
        levels = [count for count in communicator.counts if count.operation == operation]
        most = max(level.launched for level in levels)
        found += [
            Behind(communicator, operation, level.launched, most, level.total, _members(communicator, levels, level))
            for level in levels
            if level.launched < most
        ]
    return tuple(sorted(found, key=lambda one: (one.launched - one.most, one.operation or "")))


def _members(communicator: RasCommunicator, levels: list[RasCount], level: RasCount) -> tuple[int, ...]:
    named = {rank.group_rank for rank in level.ranks}
    others = [rank.group_rank for other in levels if other is not level for rank in other.ranks]
    others += [rank.group_rank for rank in communicator.missing]
    size = communicator.size
    if len(named) < level.total and size is not None and len(set(others)) == len(others) == size - level.total:
        named = set(range(size)) - set(others)
    return tuple(sorted(named))
