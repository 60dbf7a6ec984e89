"""What is run: the collectives, the groups, and the faults that can be planted to see that they are found."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import prod

from forkpoint.errors import UsageError
from forkpoint.lab.collectives.arguments import DTYPES, FORMS, GROUPS, SIZES

# ---------------------------------------------------------------------------------------------------------------------
# The collectives that are tried, and how nccl-tests turn their time into a bus bandwidth (its PERFORMANCE.md).

NUMBERS = DTYPES[:-1]
"""For reductions: backends do not agree on the sum of booleans."""
ITEM_SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "uint8": 1, "bool": 1}
TIMED = "float32"
"""Time depends on bytes, so only one type is timed; the others are only checked."""


class Bus(StrEnum):
    """How many times the busiest link carries the buffer, to make different collectives comparable."""

    ONCE = "once"
    SHARED = "shared"
    """All but a rank's own part: (n-1)/n."""
    TWICE = "twice"
    """There and back: 2(n-1)/n."""


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    name: str
    bus: Bus | None
    """None: it moves nothing."""
    dtypes: tuple[str, ...] = DTYPES
    chunked: bool = False
    """The size is the total of one part per member, as nccl-tests count it."""

    def bus_factor(self, members: int) -> float:
        if self.bus is Bus.ONCE:
            return 1.0
        return (2.0 if self.bus is Bus.TWICE else 1.0) * (members - 1) / members


KINDS = (
    CollectiveKind("all_reduce_sum", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_max", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_min", Bus.TWICE, NUMBERS),
    CollectiveKind("all_reduce_product", Bus.TWICE, NUMBERS),
    CollectiveKind("broadcast", Bus.ONCE),
    CollectiveKind("reduce_sum", Bus.ONCE, NUMBERS),
    CollectiveKind("all_gather", Bus.SHARED, chunked=True),
    CollectiveKind("all_gather_into_tensor", Bus.SHARED, chunked=True),
    CollectiveKind("reduce_scatter", Bus.SHARED, NUMBERS, chunked=True),
    CollectiveKind("reduce_scatter_tensor", Bus.SHARED, NUMBERS, chunked=True),
    CollectiveKind("all_to_all", Bus.SHARED, chunked=True),
    CollectiveKind("all_to_all_single", Bus.SHARED, chunked=True),
    CollectiveKind("all_to_all_single_uneven", Bus.SHARED, chunked=True),
    CollectiveKind("gather", Bus.SHARED, chunked=True),
    CollectiveKind("scatter", Bus.SHARED, chunked=True),
    CollectiveKind("send_recv", Bus.ONCE),
    CollectiveKind("batch_isend_irecv", Bus.ONCE),
    CollectiveKind("barrier", None, ("uint8",)),
)
KIND_BY_NAME = {kind.name: kind for kind in KINDS}


# ---------------------------------------------------------------------------------------------------------------------
# Faults that can be planted, to show that they are found.


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of what a rank received is flipped."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The last element that a rank should receive is missing."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class UnequalSizes:
    """A rank passes one element less than the others. Gloo and NCCL do not compare the sizes."""

    rank: int
    kind: str


@dataclass(frozen=True, slots=True)
class Delay:
    """A slow link: each message between two ranks takes `ms` longer."""

    one: int
    other: int
    ms: float


@dataclass(frozen=True, slots=True)
class Die:
    rank: int


@dataclass(frozen=True, slots=True)
class Hang:
    rank: int


Injected = Flip | Lost | UnequalSizes | Delay | Die | Hang

_PLANTED: dict[str, tuple[int, Callable[[list[str]], Injected]]] = {
    "flip": (2, lambda f: Flip(int(f[0]), _kind(f[1]))),
    "lost": (2, lambda f: Lost(int(f[0]), _kind(f[1]))),
    "unequal": (2, lambda f: UnequalSizes(int(f[0]), _kind(f[1]))),
    "delay": (3, lambda f: Delay(int(f[0]), int(f[1]), float(f[2]))),
    "die": (1, lambda f: Die(int(f[0]))),
    "hang": (1, lambda f: Hang(int(f[0]))),
}


def parse_injected(text: str) -> Injected:
    """`flip:3:all_gather` and the like."""
    name, *fields = text.split(":")
    wanted, make = _PLANTED.get(name, (-1, None))
    try:
        planted = make(fields) if make and len(fields) == wanted else None
    except ValueError:
        planted = None
    if planted is None:
        raise UsageError(f"{text} is not a fault: write one of {FORMS}")
    return planted


def _kind(name: str) -> str:
    if name not in KIND_BY_NAME:
        raise ValueError
    return name


# ---------------------------------------------------------------------------------------------------------------------
# What is to be run, as the command line and every rank read it from the same arguments.

_FEWEST_FOR_HALVES = 4


@dataclass(frozen=True, slots=True)
class Partition:
    """The world split into groups that run the same test at the same time."""

    name: str
    groups: tuple[tuple[int, ...], ...]

    def group_of(self, rank: int) -> tuple[int, ...] | None:
        return next((group for group in self.groups if rank in group), None)


@dataclass(frozen=True, slots=True)
class Test:
    """One collective, type and size over the groups of one partition."""

    number: int
    kind: CollectiveKind
    dtype: str
    size: int
    """Bytes, as asked for."""
    partition: Partition

    @property
    def label(self) -> str:
        return f"{self.kind.name} {self.dtype} {self.size} B over {self.partition.name}"

    @property
    def timed(self) -> bool:
        return self.dtype == TIMED or self.kind.bus is None

    def elements(self, members: int) -> int:
        """Per buffer; per part if the collective has one part for each member."""
        return max(self.size // ITEM_SIZE[self.dtype] // (members if self.kind.chunked else 1), 1)

    def bytes_of(self, members: int) -> int:
        return self.elements(members) * (members if self.kind.chunked else 1) * ITEM_SIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class CollectivesPlan:
    sizes: tuple[int, ...] = SIZES
    kinds: tuple[str, ...] = tuple(kind.name for kind in KINDS)
    dtypes: tuple[str, ...] = DTYPES
    groups: tuple[str, ...] = GROUPS
    mesh: tuple[tuple[str, int], ...] = ()
    iterations: int = 10
    pairs: bool = True
    pair_size: int = 256 << 10
    timeout: float = 60
    inject: tuple[Injected, ...] = ()
    nvtx: bool = False

    def partitions(self, world: int) -> Iterator[Partition]:
        """Only groups of two or more members; partitions that would repeat the world are left out."""
        if "world" in self.groups and world > 1:
            yield Partition("world", (tuple(range(world)),))
        if "halves" in self.groups and world >= _FEWEST_FOR_HALVES:
            yield Partition("halves", (tuple(range(world // 2)), tuple(range(world // 2, world))))
        if "pairs" in self.groups and world > 2:
            yield Partition("pairs", tuple((rank, rank + 1) for rank in range(0, world - 1, 2)))
        yield from mesh_partitions(self.mesh, world)

    def tests(self, world: int) -> list[Test]:
        chosen = [
            (partition, KIND_BY_NAME[name], size, dtype)
            for partition in self.partitions(world)
            for name, size, dtype in product(self.kinds, self.sizes, self.dtypes)
            if self._is_one(KIND_BY_NAME[name], size, dtype)
        ]
        return [Test(n, kind, dtype, size, part) for n, (part, kind, size, dtype) in enumerate(chosen)]

    def _is_one(self, kind: CollectiveKind, size: int, dtype: str) -> bool:
        """A barrier has no size: once is enough."""
        return dtype in kind.dtypes if kind.bus else (size, dtype) == (self.sizes[0], self.dtypes[0])


def mesh_partitions(mesh: Sequence[tuple[str, int]], world: int) -> Iterator[Partition]:
    """One partition per axis of a row-major mesh, as in DeviceMesh: ranks along the last axis are neighbours."""
    if mesh and prod(size for _, size in mesh) != world:
        told = ",".join(f"{name}={size}" for name, size in mesh)
        raise UsageError(f"--mesh {told} has {prod(size for _, size in mesh)} ranks, the job {world}: make them equal")
    for at, (name, size) in enumerate(mesh):
        inner = prod(length for _, length in mesh[at + 1 :])
        starts = [rank for rank in range(world) if rank // inner % size == 0]
        if size > 1:
            yield Partition(name, tuple(tuple(start + step * inner for step in range(size)) for start in starts))


def read_plan(args: Namespace) -> CollectivesPlan:
    return CollectivesPlan(
        sizes=args.sizes,
        kinds=args.collectives or tuple(kind.name for kind in KINDS),
        dtypes=args.dtypes,
        groups=args.groups,
        mesh=args.mesh,
        iterations=args.iterations,
        pairs=not args.no_pairs,
        pair_size=args.pair_size,
        timeout=args.timeout,
        inject=tuple(map(parse_injected, args.inject)),
        nvtx=args.nvtx,
    )
