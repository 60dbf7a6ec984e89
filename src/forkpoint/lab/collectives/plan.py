"""What is to be run, as the command line and every rank read it from the same arguments."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from forkpoint.errors import UsageError
from forkpoint.lab.collectives.arguments import DTYPES, GROUPS, SIZES
from forkpoint.lab.collectives.inject import Injected, parse_injected
from forkpoint.lab.collectives.kinds import ITEM_SIZE, KIND_BY_NAME, KINDS, TIMED, CollectiveKind

_FEWEST_FOR_HALVES = 4


@dataclass(frozen=True, slots=True)
class Partition:
    """The world cut into groups that do the same at the same time."""

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
        """Per buffer; per part where the collective works on one part for each member."""
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
        """Of groups with two members or more; a partition that is the world over again is left out."""
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
    """Each axis of a mesh in row-major order, as DeviceMesh and most launchers number ranks: the last axis is the closest."""
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
