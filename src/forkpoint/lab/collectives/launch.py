"""Starting the ranks of `forkpoint lab collectives`, and ending them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MODULE = "forkpoint.lab.jobs.collectives"
_END_S = 10
"""How long the ranks' starter gets to end them."""


def run_ranks(ranks: int, arguments: Sequence[str]) -> int:
    """Their exit code. What they print is the result; nothing of them is left, however this ends."""
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
    """By the driver's files: a process that forks must not have touched CUDA."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
