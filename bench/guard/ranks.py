"""Runs one job of several gloo ranks, each an interpreter of its own as in life, and leaves none of them behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forkpoint.live.processes import free_port

ROOT = Path(__file__).parents[2]
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    folder: Path
    """Each rank's output is in `log_rank_N.txt` here, and here it runs."""
    processes: tuple["subprocess.Popen[bytes]", ...]

    def log(self, rank: int) -> str:
        return (self.folder / f"log_rank_{rank}.txt").read_text(errors="replace")

    def is_over(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    def wait(self, limit_s: float) -> list[int | None]:
        """Exit code by rank; None: still running at the limit."""
        until = time.monotonic() + limit_s
        while not self.is_over() and time.monotonic() < until:
            time.sleep(_POLL_S)
        return [process.poll() for process in self.processes]


@contextmanager
def running(program: Sequence[str], world: int, folder: Path, env: Mapping[str, str]) -> Generator[Running]:
    """`program`: what follows `python`. Whoever still runs at the end of the block is killed, with its children."""
    folder.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    port = str(free_port())
    try:
        for rank in range(world):  # one by one: should a start fail, those before it are known
            processes.append(_start_rank(program, rank, folder, {**_environ(world, port), **env}))  # noqa: PERF401 as said
        yield Running(folder, tuple(processes))
    finally:
        for process in processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in processes:
            process.wait()


def _start_rank(program: Sequence[str], rank: int, folder: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with (folder / f"log_rank_{rank}.txt").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *program],
            cwd=folder,
            env={**os.environ, **env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _environ(world: int, port: str) -> dict[str, str]:
    return {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
