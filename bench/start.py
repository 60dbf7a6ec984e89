"""What a diagnosis costs before there is much to read: `python -m bench.start --ranks 8 --entries 2000 --runs 10`.

CPU seconds (user and system, of all its processes) of `forkpoint diagnose` in a fresh process, with bytecode in place as after
an installation. `--against` names the `src` folder of another checkout; both take turns, so that a busy machine slows both.
"""

import argparse
import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.generate import write_dumps
from bench.job import Job

_OWN = Path(__file__).parents[1] / "src"


def measure(sources: Sequence[Path], folder: Path, runs: int) -> list[list[float]]:
    """CPU seconds of each run, by source."""
    for source in sources:
        compileall.compile_dir(source, quiet=2)
    taken: list[list[float]] = [[] for _ in sources]
    for _ in range(runs):
        for source, times in zip(sources, taken, strict=True):
            times.append(_cpu_s(source, folder))
    return taken


def _cpu_s(source: Path, folder: Path) -> float:
    before = _children_s()
    command = [sys.executable, "-m", "forkpoint", "diagnose", str(folder)]
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
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--against", type=Path, action="append", default=[], metavar="SRC")
    arguments = parser.parse_args()
    sources = [*arguments.against, _OWN]
    with tempfile.TemporaryDirectory() as name:
        write_dumps(Path(name), Job(arguments.ranks, arguments.entries))
        for source, times in zip(sources, measure(sources, Path(name), arguments.runs), strict=True):
            print(f"{source}: min {min(times):.2f} s, median {statistics.median(times):.2f} s of {len(times)} runs")


if __name__ == "__main__":
    main()
