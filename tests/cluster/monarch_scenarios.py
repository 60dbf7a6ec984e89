"""Real Monarch workers on this machine, each with a home of its own: run as a program, which tells what happened."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from monarch.actor import Actor, attach_to_workers, endpoint

from cluster.machines import PATHS, TOLD, make_slow, plant
from forkpoint.gather import cluster as gathering
from forkpoint.gather.cluster import gather
from forkpoint.gather.engines import ClusterReach, open_engine
from forkpoint.gather.tools import CallFailed

NODES = ("node1", "node2", "node3", "slow", "dying")
ORDER = ("absent", "slow", "node1", "dying", "node2", "node3")
"""In which they are asked: the first that does not answer takes all the time there is."""
TIMEOUT_S = 60.0
JOB = "job"
WORKER = (
    "import sys; from monarch.actor import run_worker_loop_forever; "
    "run_worker_loop_forever(address=sys.argv[1], ca='trust_all_connections')"
)


class Trainer(Actor):
    """What a job has on a host."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def run_job(address: str) -> None:
    """A client of its own, in a process of its own, that was there before us: tells its trainer's number when asked."""
    job = attach_to_workers(ca="trust_all_connections", workers=[address]).spawn_procs(name="job")
    trainer = job.spawn("trainer", Trainer)
    for _ in range(2):
        sys.stdout.write(f"{trainer.pid.call_one().get(timeout=600)}\n")
        sys.stdout.flush()
        sys.stdin.readline()
    job.stop().get(timeout=600)


def main(root: Path) -> None:
    plant(root, NODES[:3], per_node=2)
    pipes = {node: make_slow(root, node) for node in NODES[3:]}
    addresses = {node: f"ipc://{root}/{node}.socket" for node in ORDER}
    workers = {node: _start(addresses[node], root / node) for node in NODES}
    command = [sys.executable, __file__, JOB, addresses["node1"]]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        before = job.stdout.readline()
        threading.Thread(target=_kill_when_read, args=(workers["dying"], pipes["dying"]), daemon=True).start()
        told = _ask(root, addresses)
        rest, _ = job.communicate("\n\n", timeout=800)
        (root / TOLD).write_text(json.dumps({**told, "trainer": [int(before), *map(int, rest.split())]}))
    finally:
        for process in (job, *workers.values()):
            process.kill()
            process.wait()


def _ask(root: Path, addresses: dict[str, str]) -> dict[str, object]:
    gathering.FAN_IN = 2  # three summaries are two levels
    engine = open_engine("monarch", ClusterReach(tuple(addresses.values()), node_timeout_s=TIMEOUT_S))
    gathered = gather(engine, PATHS)
    dump = str(root / "node2" / "dumps" / "nccl_trace_rank_2")
    got = engine.read_file(addresses["node2"], dump)
    missing = engine.read_file(addresses["node2"], f"{dump}0")
    engine.close()
    (root / "all.fps").write_bytes(gathered.summary)
    names = {address: node for node, address in addresses.items()}
    return {
        "problems": {names[answer.node]: answer.problem for answer in gathered.nodes},
        "same": got == Path(dump).read_bytes(),
        "missing": missing.why if isinstance(missing, CallFailed) else None,
    }


def _start(address: str, home: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WORKER, address], env={**os.environ, "HOME": str(home)})


def _kill_when_read(worker: "subprocess.Popen[bytes]", pipe: Path) -> None:
    """Opening waits until the node reads. It is not closed: the reader must not come to an end."""
    os.open(pipe, os.O_WRONLY)
    worker.kill()


if __name__ == "__main__":
    run_job(sys.argv[2]) if sys.argv[1] == JOB else main(Path(sys.argv[1]))
