"""The options of `forkpoint lab collectives`, which its ranks read too, and how the ranks are started."""

import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from forkpoint.errors import UsageError

# ---------------------------------------------------------------------------------------------------------------------
# The options. The plan is imported only where an option needs it: `--help` must not pay for it.

DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
SIZES = (8, 64 << 10, 1 << 20)
GROUPS = ("world", "halves")
FORMS = "{flip|lost|unequal}:RANK:COLLECTIVE, delay:RANK:RANK:MS, {die|hang}:RANK"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def add_plan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=_sizes, default=SIZES, metavar="N,N", help="bytes of a buffer (default: 8,64K,1M)"
    )
    parser.add_argument("--collectives", type=_kinds, metavar="NAME,NAME", help="only these (default: all)")
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
    parser.add_argument("--no-pairs", action="store_true", help="do not time every pair of ranks")
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
        "--collectives": ",".join(args.collectives or ()),
        "--dtypes": ",".join(args.dtypes),
        "--groups": ",".join(args.groups),
        "--mesh": ",".join(f"{name}={size}" for name, size in args.mesh),
        "--iterations": str(args.iterations),
        "--pair-size": str(args.pair_size),
        "--timeout": str(args.timeout),
    }
    given = [part for name, text in texts.items() if text for part in (name, text)]
    flags = [name for name, on in (("--no-pairs", args.no_pairs), ("--nvtx", args.nvtx)) if on]
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
    from forkpoint.lab.collectives.plan import KIND_BY_NAME  # noqa: PLC0415 as said

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
    from forkpoint.lab.collectives.plan import parse_injected  # noqa: PLC0415 as said

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
