"""Where the evidence of one attempt goes: never into the folder of another run.

    FOLDER/NAME/attempt_N/NODE/    dumps, logs and what the launcher printed on that node

Nodes of one job that share FOLDER and NAME are diagnosed together.
"""

import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forkpoint.errors import UsageError

DUMP_PREFIX = "nccl_trace_rank_"

_MAX_TRIES = 1000


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt on one node."""

    attempt: Path
    """Of all nodes: what is diagnosed."""
    node: Path

    @property
    def dumps(self) -> Path:
        return self.node / "dumps"

    @property
    def logs(self) -> Path:
        return self.node / "logs"

    @property
    def guard(self) -> Path:
        return self.node / "guard"


def run_name(environ: Mapping[str, str]) -> str:
    """The scheduler's number of the job, which all its nodes know; else one of our own."""
    job = environ.get("SLURM_JOB_ID")
    if job:
        again = environ.get("SLURM_RESTART_COUNT", "0")
        return f"slurm-{job}" if again == "0" else f"slurm-{job}-restart-{again}"
    return time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}")


def node_name(environ: Mapping[str, str]) -> str:
    """As the scheduler calls it, so that it can be left out by that name. A pod is told by NODE_NAME."""
    return environ.get("SLURMD_NODENAME") or environ.get("NODE_NAME") or socket.gethostname()


def make_attempt_folder(folder: Path, name: str, number: int, node: str) -> AttemptFolder:
    """A second run of the same name gets a number appended."""
    for again in range(1, _MAX_TRIES):
        attempt = folder / (name if again == 1 else f"{name}-{again}") / f"attempt_{number}"
        place = AttemptFolder(attempt.absolute(), attempt.absolute() / node)
        try:
            place.node.mkdir(parents=True)
            place.dumps.mkdir()
            place.logs.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"--folder {folder}: {error.strerror}; name a folder that can be written to") from error
        return place
    raise UsageError(f"--folder {folder}: holds {_MAX_TRIES} runs called {name}; give another --name")


def remove_attempt_folder(place: AttemptFolder) -> bool:
    """After a success: removes what was written only in case of a failure. False: there is a dump, so all of it stays."""
    if any(place.dumps.iterdir()) or place.guard.exists():
        return False
    shutil.rmtree(place.node, ignore_errors=True)
    for above in (place.attempt, place.attempt.parent, place.attempt.parent.parent):
        try:
            above.rmdir()
        except OSError:  # not empty
            break
    return True
