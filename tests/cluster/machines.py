"""Nodes of a job, each a folder that is its home. On all of them the evidence lies in ~/dumps."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forkpoint.model.verdict import Verdict
from small_jobs import SmallJob

PATHS = ("~/dumps",)
TOLD = "told.json"
SAID = "said.txt"
_TESTS = Path(__file__).parents[1]
_LIMIT_S = 800
_NOT_STARTED = "Failed to connect to GCS within"
"""Ray ends the process itself when its server, another process, does not answer in this time."""
_START_S = 180
_BROKE = "FATAL: exception not rethrown"
"""Monarch's own threads end its process so now and then, mostly when everything is told."""
_ENDS_MS = 20_000


def hung_job(world: int) -> SmallJob:
    """The last rank leaves before the last all_reduce, and all others wait for it."""
    job = SmallJob(world)
    for _ in range(8):
        job.op()
    job.op(range(world - 1), done=False)
    return job


def plant(root: Path, nodes: Sequence[str], per_node: int = 1) -> None:
    """The ranks' dumps, `per_node` on each node in their order."""
    job = hung_job(len(nodes) * per_node)
    for number, node in enumerate(nodes):
        dumps = root / node / "dumps"
        dumps.mkdir(parents=True, exist_ok=True)
        for rank in range(number * per_node, (number + 1) * per_node):
            (dumps / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))


def make_slow(root: Path, node: str) -> Path:
    """Its evidence is a pipe: who opens it to write, waits for a reader, and who reads, waits for ever."""
    pipe = root / node / "dumps"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    return pipe


def essence(verdict: Verdict) -> tuple[object, ...]:
    return verdict.cause, verdict.suspects, verdict.symptom, verdict.divergence, verdict.confidence


@dataclass(frozen=True, slots=True)
class Scenario:
    """A program that tells of a real engine, in a process of its own: engines leave threads and handlers behind."""

    root: Path
    process: "subprocess.Popen[bytes]"

    def told(self) -> dict[str, Any]:
        try:
            self.process.wait(timeout=_LIMIT_S)
        finally:
            self.end()
        said = (self.root / SAID).read_text()
        if self.process.returncode and _NOT_STARTED in said:
            pytest.skip("Ray's own server did not start on this machine")
        broke = self.process.returncode != 0 and _BROKE in said
        if broke and not (self.root / TOLD).exists():
            pytest.skip("Monarch's own threads ended its process")
        assert broke or self.process.returncode == 0, said[-4000:]
        return {**json.loads((self.root / TOLD).read_text()), "left": left_behind(self.root)}

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


_PATIENT = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(_START_S),
    "RAY_gcs_rpc_server_connect_timeout_s": str(_START_S),
}


def begin(program: str, root: Path) -> Scenario:
    named = [path for path in (os.environ.get("PYTHONPATH"), str(_TESTS)) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(named), "RAY_USAGE_STATS_ENABLED": "0"} | _PATIENT
    command = [sys.executable, str(_TESTS / "cluster" / program), str(root)]
    with (root / SAID).open("w") as said:
        process = subprocess.Popen(command, env=env, start_new_session=True, stdout=said, stderr=subprocess.STDOUT)
    return Scenario(root, process)


def left_behind(root: Path) -> list[int]:
    """Processes of the nodes, which have their homes below the root, that do not end by themselves."""
    home = f"\0HOME={root}/".encode()
    found = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and home in b"\0" + _environment(p)]
    return [pid for pid in found if not _ends(pid)]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _ends(pid: int) -> bool:
    """A pidfd can be read once its process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(_ENDS_MS))
    finally:
        os.close(handle)
