"""CPU seconds and peak memory of a diagnosis, by the number of ranks. The processes that make dumps are not counted."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.run import Cost, measure
from bench.scale.faults import FaultKind, one_world

_FORKPOINT = Path(sys.executable).parent / "forkpoint"
FOUND = (0, 1, 4)
"""Exit codes of `diagnose` that are answers."""


@dataclass(frozen=True, slots=True)
class Row:
    ranks: int
    dumps_mb: float
    cpu_s: float
    peak_mb: float
    """Of the largest process."""
    right: bool
    """It names exactly the rank at fault."""


def diagnose_files(folder: Path, ranks: int, kind: FaultKind, seed: int, *, native: bool = True) -> Row:
    """`forkpoint diagnose FOLDER`, as a person would run it."""
    with environment(FORKPOINT_NATIVE="1" if native else "0"):
        cost = measure([_FORKPOINT, "diagnose", folder, "--json", "--quiet"], ok=FOUND)
    return _row(ranks, _megabytes(folder), [cost], kind, seed)


def diagnose_nodes(ranks: int, kind: FaultKind, seed: int) -> Row:
    """`forkpoint summarise` where dumps lie, eight ranks a node, and `forkpoint diagnose` of what they send."""
    with tempfile.TemporaryDirectory() as parts, tempfile.TemporaryDirectory() as shared:
        summarised = _summarise_nodes(Path(shared), Path(parts), ranks, kind, seed)
        sent = _megabytes(Path(parts))
        diagnosed = measure([_FORKPOINT, "diagnose", parts, "--json", "--quiet"], ok=FOUND)
    return _row(ranks, sent, [summarised, diagnosed], kind, seed)


def diagnose_together(ranks: int, kind: FaultKind, seed: int) -> Row:
    """`forkpoint diagnose` of all dumps in one process. They are handed over node by node: together they fill a disk."""
    with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryFile() as verdict:
        cost = _fed(Path(shared), ["bench.scale.together"], verdict, ranks, kind, seed)
        verdict.seek(0)
        told = Cost(cost.cpu_s, cost.peak_mb, verdict.read().decode())
    return _row(ranks, 0.0, [told], kind, seed)


def _summarise_nodes(shared: Path, parts: Path, ranks: int, kind: FaultKind, seed: int) -> Cost:
    return _fed(shared, ["bench.scale.nodes", str(parts)], None, ranks, kind, seed)


def _fed(
    shared: Path, reader_module: list[str], said: IO[bytes] | None, ranks: int, kind: FaultKind, seed: int
) -> Cost:
    """A reader beside a feeder; only the reader is counted."""
    chosen = ["--ranks", str(ranks), "--kind", kind, "--seed", str(seed)]
    read = [sys.executable, "-m", *reader_module]
    feed = [sys.executable, "-m", "bench.scale.feed", str(shared), *chosen]
    done, say_done = os.pipe()
    feeder = subprocess.Popen(feed, stdin=done, stdout=subprocess.PIPE)
    reader = subprocess.Popen(read, stdin=feeder.stdout, stdout=say_done, stderr=said)
    os.close(done)
    os.close(say_done)
    _, status, usage = os.wait4(reader.pid, 0)
    reader.returncode = os.waitstatus_to_exitcode(status)
    feeder.wait()
    if reader.returncode or feeder.returncode:
        raise SystemExit(f"reading nodes exits with {reader.returncode}, feeding them with {feeder.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, "")


def _row(ranks: int, megabytes: float, costs: list[Cost], kind: FaultKind, seed: int) -> Row:
    verdict = json.loads(costs[-1].output)
    return Row(
        ranks,
        megabytes,
        sum(cost.cpu_s for cost in costs),
        max(cost.peak_mb for cost in costs),
        verdict["suspects"] == [one_world(ranks, kind, seed).rank],
    )


@contextmanager
def written(ranks: int, kind: FaultKind, seed: int) -> Generator[Path]:
    """All dumps of a world, in files."""
    with tempfile.TemporaryDirectory(prefix="forkpoint-scale-") as folder:
        chosen = ["--ranks", str(ranks), "--kind", kind, "--seed", str(seed)]
        subprocess.run([sys.executable, "-m", "bench.scale.feed", folder, "--at-once", *chosen], check=True)
        yield Path(folder)


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


@contextmanager
def environment(**values: str) -> Generator[None]:
    before = dict(os.environ)
    os.environ |= values
    yield
    os.environ.clear()
    os.environ |= before
