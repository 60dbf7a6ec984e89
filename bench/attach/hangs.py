"""Live jobs that hang, on gloo or on NCCL, and a process that may not use ptrace: for `bench.attach` and tests."""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.live.processes import read_state

JOB = Path(__file__).with_name("job.py")
WHO = 2
WORLD = 4
_STARTED_S = 600.0
_SETTLES_S = 3.0
"""For ranks to come from where they said that they begin to where they hang."""
_AS_NOBODY = (
    "setpriv",
    "--reuid=65534",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
"""Another user, who may read this checkout wherever it lies."""


@dataclass(frozen=True)
class Hang:
    name: str
    kind: str
    """A function of job.py."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    by_rank: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    without_ptrace: bool = False
    other_user: bool = False
    world: int = WORLD


HANGS = (
    Hang("sleeps; nothing on but py-spy", "sleep"),
    Hang("takes another branch; nothing on but py-spy", "branch"),
    Hang("leaves a loop early; nothing on but py-spy", "skip"),
    Hang("waits for its loader's queue; debug server", "lock", {"DEBUG_SERVER": "1"}),
    Hang("reads from storage that does not answer; debug server", "read", {"DEBUG_SERVER": "1"}),
    Hang("runs a loop without end; guard", "busy", {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"}),
    Hang("groups in another order; guard", "order", {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"}),
    Hang("stopped by a signal; nothing on but py-spy", "stopped"),
    Hang(
        "takes another branch; no ptrace, guard",
        "branch",
        {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"},
        without_ptrace=True,
    ),
    Hang("reads from storage; no ptrace, debug server", "read", {"DEBUG_SERVER": "1"}, without_ptrace=True),
    Hang("sleeps; job of another user, attached by root", "sleep", other_user=True),
)

_PIPE = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "{folder}/pipe_", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
_GUARD = {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"}
_ON_ONE_GPU = {
    "BACKEND": "nccl",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MAX_NCHANNELS": "2",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_FR_BUFFER_SIZE": "2000",
}
"""Several ranks share one GPU where NCCL takes them for hosts of their own."""


def _on_nccl(name: str, kind: str, env: Mapping[str, str], *, without_ptrace: bool = False) -> Hang:
    hosts = {rank: {"NCCL_HOSTID": f"node{rank}"} for rank in range(WORLD)}
    return Hang(name, kind, {**_ON_ONE_GPU, **env}, hosts, without_ptrace)


NCCL_HANGS = (
    _on_nccl("sleeps; dump pipe and py-spy", "sleep", _PIPE),
    _on_nccl("takes another branch; dump pipe and py-spy", "branch", _PIPE),
    _on_nccl("leaves a loop early; guard", "skip", _GUARD),
    _on_nccl("waits for its loader's queue; debug server", "lock", {"DEBUG_SERVER": "1"}),
    _on_nccl("reads from storage; no ptrace, guard", "read", _GUARD, without_ptrace=True),
    _on_nccl("runs a loop without end; guard", "busy", _GUARD),
    _on_nccl("groups in another order; dump pipe and py-spy", "order", _PIPE),
    _on_nccl("sleeps; nothing on but py-spy", "sleep", {}),
)


HEALTHY = Hang("nothing: all ranks go on; nothing on but py-spy", "healthy")
"""Nobody may be named."""


@dataclass
class Running:
    folder: Path
    ranks: list["subprocess.Popen[bytes]"]

    def states(self) -> list[tuple[int, int, str]]:
        """Pid, start and whether it is stopped: sleeping and running change from moment to moment."""
        found = [(rank.pid, read_state(rank.pid)) for rank in self.ranks]
        return [(pid, state.started, "T" if state.is_stopped else "lives") for pid, state in found if state]


@contextmanager
def running(hang: Hang, port: int) -> Generator[Running]:
    """Until it hangs, and as long as it is looked at."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o777)
        ranks = [_start(hang, rank, port, folder) for rank in range(hang.world)]
        try:
            wait_for(lambda: all((folder / f"begun_{rank}").exists() for rank in range(hang.world)))
            if hang.kind == "stopped":
                wait_for((folder / "ready").exists)
                os.kill(ranks[WHO].pid, signal.SIGSTOP)
            time.sleep(_SETTLES_S)
            yield Running(folder, ranks)
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.wait()


def _start(hang: Hang, rank: int, port: int, folder: Path) -> "subprocess.Popen[bytes]":
    world = {"WORLD_SIZE": hang.world, "LOCAL_WORLD_SIZE": hang.world}
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port, **world}
    told = {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }
    given = {name: value.format(folder=folder) for name, value in {**hang.env, **hang.by_rank.get(rank, {})}.items()}
    with (folder / f"log_rank_{rank}.txt").open("w") as log:
        return subprocess.Popen(
            [*(_AS_NOBODY if hang.other_user else ()), sys.executable, str(JOB), hang.kind, str(folder)],
            cwd=folder,
            env={**os.environ, **told, **given},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _STARTED_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the job did not begin")
        time.sleep(0.1)


# ---------------------------------------------------------------------------------------------------------------------
# A process without ptrace: the filter that containers' seccomp profiles put on it.

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_FORBIDDEN = {"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}
"""ptrace, process_vm_readv, process_vm_writev."""


def forbid_ptrace() -> None:
    """In this process and all that it starts."""
    numbers = _FORBIDDEN[os.uname().machine]
    steps = [(_LOAD, 0, 0, 0)]
    steps += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(code)
    given = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.create_string_buffer(given), 0, 0):  # PR_SET_SECCOMP, a filter
        raise OSError(ctypes.get_errno(), "no seccomp filter")
