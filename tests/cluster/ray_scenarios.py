"""A real Ray of five nodes on this machine, each with a home of its own: run as a program, which tells what happened."""

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path

from ray._private.node import Node
from ray.cluster_utils import Cluster

from cluster.machines import PATHS, TOLD, make_slow, plant
from forkpoint.errors import UsageError
from forkpoint.gather import cluster as gathering
from forkpoint.gather.cluster import gather
from forkpoint.gather.engines import ClusterReach, open_engine
from forkpoint.gather.tools import CallFailed

NODES = ("node1", "node2", "node3", "slow", "dying")
TIMEOUT_S = 60.0
_JOINED_S = 600.0


def main(root: Path) -> None:
    # A short path, for Ray's sockets; what other clusters of this machine left is elsewhere.
    own = Path(tempfile.mkdtemp(prefix="r"))
    os.environ["RAY_TMPDIR"] = str(own)
    try:
        _tell(root, {"refused": _open_without_cluster(), "refused_dead": _open_dead_cluster(own)})
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _tell(root: Path, refused: dict[str, str]) -> None:
    plant(root, NODES[:3], per_node=2)
    pipes = {node: make_slow(root, node) for node in NODES[3:]}
    cluster, started = _start(root)
    try:
        names = {_name(node): home for home, node in started.items()}
        death = (cluster, started["dying"], pipes["dying"])
        killer = threading.Thread(target=_kill_when_read, args=death, daemon=True)
        killer.start()
        gathering.FAN_IN = 2  # three summaries are two levels
        engine = open_engine("ray", ClusterReach(address=cluster.address, node_timeout_s=TIMEOUT_S))
        gathered = gather(engine, PATHS)
        dump = str(root / "node2" / "dumps" / "nccl_trace_rank_2")
        by_home = {home: name for name, home in names.items()}
        got = engine.read_file(by_home["node2"], dump)
        lost = engine.read_file(by_home["dying"], dump)
        (root / "all.fps").write_bytes(gathered.summary)
        told = {
            **refused,
            "problems": {names[answer.node]: answer.problem for answer in gathered.nodes},
            "same": got == Path(dump).read_bytes(),
            "lost": lost.why if isinstance(lost, CallFailed) else None,
            "running": len(_tasks()),
        }
        engine.close()
    finally:
        cluster.shutdown()
    (root / TOLD).write_text(json.dumps(told))


def _open_without_cluster() -> str:
    try:
        open_engine("ray", ClusterReach(address="auto"))
    except UsageError as error:
        return str(error)
    return "connected"


def _open_dead_cluster(own: Path) -> str:
    """Ray's note of the last cluster of this machine names a port at which nobody listens any more."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    note = own / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    note.write_text(f"127.0.0.1:{port}")
    try:
        return _open_without_cluster()
    finally:
        note.unlink()


def _start(root: Path, attempts: int = 4) -> tuple[Cluster, dict[str, Node]]:
    """Ray gives a node 30 s to start, which a busy machine may exceed: tried again then."""
    cluster = Cluster()
    try:
        started = {node: _add(cluster, root / node) for node in NODES}
        cluster.wait_for_nodes(timeout=_JOINED_S)
    except Exception:
        cluster.shutdown()
        if attempts == 1:
            raise
        return _start(root, attempts - 1)
    return cluster, started


def _add(cluster: Cluster, home: Path) -> Node:
    head = {} if cluster.head_node else {"include_dashboard": False}
    return cluster.add_node(num_cpus=1, env_vars={"HOME": str(home)}, wait=False, **head)


def _name(node: Node) -> str:
    return f"{os.uname().nodename}-{node.node_id[:8]}"


def _kill_when_read(cluster: Cluster, node: Node, pipe: Path) -> None:
    """Opening waits until the node reads. It is not closed: the reader must not come to an end."""
    os.open(pipe, os.O_WRONLY)
    cluster.remove_node(node, allow_graceful=False)


def _tasks() -> list[str]:
    """Readers of pipes that nobody waits for any more."""
    return [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and _title(p).startswith("ray::_summarise")]


def _title(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
