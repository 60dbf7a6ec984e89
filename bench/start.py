"""What a diagnosis costs before there is much to read: `python -m bench.start --ranks 8 --entries 2000 --runs 10`.

CPU seconds (user and system, of all its processes) of `forkpoint diagnose` in a fresh process, with bytecode in place as after
an installation. `--against` names the `src` folder of another checkout; both take turns, so that a busy machine slows both.
The last row of each size is `--in-process`: what the reading child costs. `--world`: the jobs of bench.scale.
"""

import argparse
import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.generate import write_dumps
from bench.job import Job
from bench.scale.cost import written
from bench.scale.faults import FaultKind

_OWN = Path(__file__).parents[1] / "src"


Way = tuple[Path, tuple[str, ...]]
"""A source, and options of `diagnose`."""


def measure(ways: Sequence[Way], folder: Path, runs: int) -> list[list[float]]:
    """CPU seconds of each run, by way."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(runs):
        for way, times in zip(ways, taken, strict=True):
            times.append(_cpu_s(way, folder))
    return taken


def _cpu_s(way: Way, folder: Path) -> float:
    source, options = way
    before = _children_s()
    command = [sys.executable, "-m", "forkpoint", "diagnose", str(folder), *options]
    environ = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 1:  # something found
        raise RuntimeError(done.stderr)
    return _children_s() - before


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8])
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--against", type=Path, action="append", default=[], metavar="SRC")
    parser.add_argument("--world", action="store_true")
    args = parser.parse_args()
    ways: list[Way] = [*((source, ()) for source in (*args.against, _OWN)), (_OWN, ("--in-process",))]
    for source, _ in ways:
        compileall.compile_dir(source, quiet=2)
    for ranks in args.ranks:
        with written(ranks, FaultKind.SKIP, 1) if args.world else _written(Job(ranks, args.entries)) as folder:
            for (source, options), times in zip(ways, measure(ways, folder, args.runs), strict=True):
                told = f"min {min(times):.2f} s, median {statistics.median(times):.2f} s of {len(times)} runs"
                print(f"{ranks} ranks, {' '.join((str(source), *options))}: {told}", flush=True)


@contextmanager
def _written(job: Job) -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        write_dumps(Path(name), job)
        yield Path(name)


if __name__ == "__main__":
    main()
