"""How fast a log is read, and in how much memory: two generated logs of many ranks, each read by a process of its own.

    python -m bench.logs --mb 1024

Speeds are megabytes of log per CPU second of all processes (Python's start and imports left out), so they depend little
on how busy the machine is with others, and not on how many cores it has; and per second of time.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_RANKS = 64
_HIT_EVERY = 100_000
_WORDS = ("batch", "shard", "epoch", "token", "layer", "cache", "fetch", "async", "queue", "merge", "index", "gradient")
_READ = """\
import json, resource, sys, time
from forkpoint.evidence.logs import read_log
begun, import_s = time.perf_counter(), time.process_time()
with open(sys.argv[1], "rb") as log:
    reading = read_log(log, "log", None)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "cpu_s": sum(u.ru_utime + u.ru_stime for u in used) - import_s,
    "wall_s": time.perf_counter() - begun,
    "peak_mb": max(u.ru_maxrss for u in used) / 1024,
    "events": len(reading.events), "lines": reading.lines, "speakers": len(reading.speakers),
}))
"""


def lines(size: int, *, varied: bool) -> Iterator[bytes]:
    """A log of `size` bytes: what ranks print while they train, and now and then something that matters."""
    rng = random.Random(7)
    written = number = 0
    while written < size:
        number += 1
        rank = rng.randrange(_RANKS)
        text = _hit(rank, number) if number % _HIT_EVERY == 0 else _ordinary(rng, rank, number, varied=varied)
        line = text.encode()
        written += len(line)
        yield line


def _ordinary(rng: random.Random, rank: int, number: int, *, varied: bool) -> str:
    at = f"2026-11-15 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02},{rng.randrange(1000):03}"
    if varied:
        words = " ".join(rng.choices(_WORDS, k=9))
        return f"[rank{rank}]: {at} INFO sample {rng.getrandbits(64):016x}: {words}\n"
    which = rng.random()
    if which < 0.6:
        return (
            f"[rank{rank}]: {at} INFO trainer: step {number} loss {rng.random() * 4:.4f} grad_norm {rng.random():.3f} "
            f"lr 3.0e-4 tokens/s {rng.randrange(20000)} mem {rng.random() * 80:.1f}GiB\n"
        )
    if which < 0.75:
        bar = "█" * rng.randrange(20)
        return f"[rank{rank}]: Epoch 3: {rng.randrange(100)}%|{bar:<20}| {rng.randrange(9999)}/10000 [03:12<02:59]\n"
    if which < 0.98:
        return f"{rank}: {at} WARNING data.loader: queue depth {rng.randrange(16)}, shard s3://b/part-{number:07}.tar\n"
    return f"[rank{rank}]: {at} INFO checkpoint: wrote {rng.getrandbits(128):032x}\n"


def _hit(rank: int, number: int) -> str:
    return (
        f"[rank{rank}]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=71178, NumelOut=71178, "
        "Timeout(ms)=20000) ran for 20091 milliseconds before timing out.\n"
    )


def measure(log: Path, *, ripgrep: bool) -> dict[str, float]:
    """One reading, in a process of its own."""
    folders = [shutil.which("rg")] if ripgrep else []
    path = os.pathsep.join(os.path.dirname(folder) for folder in folders if folder)  # noqa: PTH120 - a str for PATH
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(log)], env={**os.environ, "PATH": path}, check=True, capture_output=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=1024, help="size of the log")
    parser.add_argument("--runs", type=int, default=3, help="readings of each kind; the fastest counts")
    chosen = parser.parse_args()
    for varied in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "job.log"
            begun = time.perf_counter()
            with log.open("wb") as out:
                out.writelines(lines(chosen.mb << 20, varied=varied))
            size = log.stat().st_size / 1e6
            kind = "a log that never repeats itself" if varied else "what ranks print while they train"
            print(f"{kind}: {size:.0f} MB of {_RANKS} ranks, written in {time.perf_counter() - begun:.0f} s")
            report(log, size, chosen.runs)


def report(log: Path, size: float, runs: int) -> None:
    """The fastest of some readings, without and with ripgrep."""
    for ripgrep in (False, True):
        if ripgrep and not shutil.which("rg"):
            print("ripgrep is not installed")
            continue
        best = min((measure(log, ripgrep=ripgrep) for _ in range(runs)), key=lambda each: each["cpu_s"])
        print(
            f"{'with ripgrep' if ripgrep else 'alone':12s} {size / best['cpu_s']:6.0f} MB/s of CPU, "
            f"{size / best['wall_s']:6.0f} MB/s of time, peak {best['peak_mb']:.0f} MB, "
            f"{best['events']:.0f} events, {best['lines']:.0f} lines, {best['speakers']:.0f} speakers"
        )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
