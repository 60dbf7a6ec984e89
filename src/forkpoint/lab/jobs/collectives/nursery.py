"""Ranks of one machine, forked from one process that has imported torch: eight of them start as fast as one."""

import os
import signal
import sys
import time
from collections.abc import Callable

from forkpoint.lab.collectives.arguments import count_gpus
from forkpoint.lab.ranks import _free_port

_SAID = (0, 1)
"""Exit codes of a rank that came to its end: nothing found, something found."""
_LOST = 4
_GRACE_S = 2
_POLL_S = 0.05
_ONE_GPU = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_MAX_NCHANNELS": "2",
}
"""With a host of its own for every rank NCCL accepts the same GPU twice, and goes over loopback sockets."""


def fork_ranks(world: int, backend: str | None, run: Callable[[], int]) -> int:
    """The exit code of the first rank. However it ends, no rank is left."""
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    children = {_fork({**shared, **_of_rank(rank, world, backend)}, run): rank for rank in range(world)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _wait_for_first(children)
    finally:
        _end(children)


def _wait_for_first(children: dict[int, int]) -> int:
    """Takes those that ended out of `children`, process -> rank."""
    while True:
        pid, status = os.wait()
        rank, ended = children.pop(pid), os.waitstatus_to_exitcode(status)
        if ended not in _SAID:
            said = f"forkpoint: rank {rank} ended with {ended} before it could tell its part"
            print(said, file=sys.stderr, flush=True)
        if rank == 0:
            return ended if ended in _SAID else _LOST


def _end(children: dict[int, int]) -> None:
    """They end by themselves when the first has printed; those that cannot are ended."""
    deadline = time.monotonic() + _GRACE_S
    left = set(children)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        time.sleep(_POLL_S)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _of_rank(rank: int, world: int, backend: str | None) -> dict[str, str]:
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if backend == "gloo" or count_gpus() >= world:
        return own
    return {**own, **_ONE_GPU, "NCCL_HOSTID": f"node{rank}"}


def _fork(env: dict[str, str], run: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(env)
    code = _LOST
    try:
        code = run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
