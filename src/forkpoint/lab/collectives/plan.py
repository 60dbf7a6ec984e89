"""What is run: the collectives, the groups, the faults that can be planted to see that they are found; the options of
`forkpoint lab collectives`, which its ranks read too; and how the ranks are started.
"""

import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from forkpoint.errors import UsageError

# ---------------------------------------------------------------------------------------------------------------------
# The collectives that are tried, and how nccl-tests turn their time into a bus bandwidth (its PERFORMANCE.md).

DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
SIZES = (8, 64 << 10, 1 << 20)
GROUPS = ("world", "halves")
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

FORMS = "{flip|lost|unequal}:RANK:COLLECTIVE, delay:RANK:RANK:MS, {die|hang}:RANK"


class Injected(NamedTuple):
    what: str
    rank: int
    kind: str = ""
    peer: int = -1
    ms: float = 0.0


_FIELDS = {
    "flip": ("rank", "kind"),  # one bit of what a rank received is flipped
    "lost": ("rank", "kind"),  # the last element that a rank should receive is missing
    "unequal": ("rank", "kind"),  # a rank passes one element less: gloo and NCCL do not compare the sizes
    "delay": ("rank", "peer", "ms"),  # a slow link: each message between the two takes longer
    "die": ("rank",),
    "hang": ("rank",),
}


_READ: dict[str, Callable[[str], Any]] = {
    "rank": int,
    "peer": int,
    "ms": float,
    "kind": lambda name: KIND_BY_NAME[name].name,
}


def parse_injected(text: str) -> Injected:
    """`flip:3:all_gather` and the like."""
    what, *told = text.split(":")
    try:
        values = {name: _READ[name](value) for name, value in zip(_FIELDS.get(what, ()), told, strict=True)}
    except (KeyError, ValueError):
        values = {}
    if not values:
        raise UsageError(f"{text} is not a fault: write one of {FORMS}")
    return Injected(what, **values)


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
    told = {field.name: getattr(args, field.name) for field in fields(CollectivesPlan)}
    told |= {"kinds": args.kinds or tuple(KIND_BY_NAME), "inject": tuple(map(parse_injected, args.inject))}
    return CollectivesPlan(**told)


# ---------------------------------------------------------------------------------------------------------------------
# The options.

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_plan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=_sizes, default=SIZES, metavar="N,N", help="bytes of a buffer (default: 8,64K,1M)"
    )
    parser.add_argument(
        "--collectives", dest="kinds", type=_kinds, metavar="NAME,NAME", help="only these (default: all)"
    )
    parser.add_argument("--dtypes", type=_dtypes, default=DTYPES, metavar="NAME,NAME", help=f"of {', '.join(DTYPES)}")
    parser.add_argument(
        "--groups",
        type=_groups,
        default=GROUPS,
        metavar="NAME,NAME",
        help="of world, halves, pairs (default: world,halves)",
    )
    parser.add_argument(
        "--mesh",
        type=_mesh,
        default=(),
        metavar="dp=4,tp=2",
        help="also the groups of the job's mesh, outermost axis first",
    )
    parser.add_argument("--iterations", type=_positive, default=10, metavar="N", help="timed calls each (default: 10)")
    parser.add_argument("--no-pairs", dest="pairs", action="store_false", help="do not time every pair of ranks")
    parser.add_argument(
        "--pair-size", type=_size, default=256 << 10, metavar="N", help="bytes between two ranks (default: 256K)"
    )
    parser.add_argument(
        "--timeout", type=_positive, default=60, metavar="S", help="longest wait for one collective (default: 60)"
    )
    parser.add_argument(
        "--inject",
        type=_injected,
        action="append",
        default=[],
        metavar="WHAT",
        help=f"plant a fault to see it found: {FORMS}",
    )
    parser.add_argument("--nvtx", action="store_true", help="push an NVTX range per test, for a profiler")


def write_arguments(args: Namespace) -> list[str]:
    """The same options for the ranks' command line, which `add_plan_arguments` parses again."""
    texts = {
        "--sizes": ",".join(map(str, args.sizes)),
        "--collectives": ",".join(args.kinds or ()),
        "--dtypes": ",".join(args.dtypes),
        "--groups": ",".join(args.groups),
        "--mesh": ",".join(f"{name}={size}" for name, size in args.mesh),
        "--iterations": str(args.iterations),
        "--pair-size": str(args.pair_size),
        "--timeout": str(args.timeout),
    }
    given = [part for name, text in texts.items() if text for part in (name, text)]
    flags = [name for name, on in (("--no-pairs", not args.pairs), ("--nvtx", args.nvtx)) if on]
    return [*given, *flags, *(part for text in args.inject for part in ("--inject", text))]


def _size(text: str) -> int:
    digits, unit = (text[:-1], _UNITS[text[-1].upper()]) if text[-1:].upper() in _UNITS else (text, 1)
    if not digits.isdecimal() or not int(digits):
        raise ArgumentTypeError(f"{text} is not a size: write 8, 64K, 1M or 1G")
    return int(digits) * unit


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_size(part) for part in text.split(","))


def _one_of(known: Sequence[str], text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise ArgumentTypeError(f"{name} is not one of {', '.join(known)}")
    return names


def _kinds(text: str) -> tuple[str, ...]:
    return _one_of(tuple(KIND_BY_NAME), text)


def _dtypes(text: str) -> tuple[str, ...]:
    return _one_of(DTYPES, text)


def _groups(text: str) -> tuple[str, ...]:
    return _one_of((*GROUPS, "pairs"), text)


def _mesh(text: str) -> tuple[tuple[str, int], ...]:
    axes = [part.partition("=") for part in text.split(",")]
    if not all(name and size.isdecimal() and int(size) for name, _, size in axes):
        raise ArgumentTypeError(f"{text} is not a mesh: write dp=4,tp=2")
    return tuple((name, int(size)) for name, _, size in axes)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("must be a number, at least 1")
    return int(text)


def _injected(text: str) -> str:
    try:
        parse_injected(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Starting the ranks of `forkpoint lab collectives`, and ending them.

MODULE = "forkpoint.lab.jobs.collectives"
_END_S = 10
"""How long the parent of the ranks gets to end them."""


def run_ranks(ranks: int, arguments: Sequence[str]) -> int:
    """Returns their exit code. They print the result. No process is left, however this ends."""
    command = [sys.executable, "-m", MODULE, "--ranks", str(ranks), *arguments]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own Python and module
    try:
        return started.wait()
    finally:
        if started.poll() is None:
            started.terminate()
            try:
                started.wait(_END_S)
            except subprocess.TimeoutExpired:
                started.kill()  # its ranks see that it is gone, and end


def count_gpus() -> int:
    """From the driver's files: a process that forks must not have used CUDA."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
