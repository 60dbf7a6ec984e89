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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from forkpoint.live.processes import PROC, list_pids, read_state

JOB = Path(__file__).with_name("job.py")
WHO = 2
WORLD = 4
_STARTED_S = 600.0
_EACH_A_HOST = 'NCCL_HOSTID=node$RANK exec "$0" "$@"'
"""NCCL accepts one GPU for several ranks if it takes them for several hosts."""
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
_CONFINED = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
_LOOPBACK_UP = "import fcntl, os, socket, struct, sys; \
fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 1)); os.execvp(sys.argv[1], sys.argv[1:])"
_IN_NAMESPACE = (
    *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc", "--net"),
    *(sys.executable, "-c", _LOOPBACK_UP, *_CONFINED),
)
"""A container, as far as `attach` can tell: namespaces of its own, no CAP_SYS_PTRACE."""


@dataclass(frozen=True)
class Hang:
    name: str
    kind: str
    """A program in `programs/`, or a function of job.py. Its lines that count as right end in `# here: KIND`."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    by_rank: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    without_ptrace: bool = False
    other_user: bool = False
    world: int = WORLD
    who: int = WHO
    in_namespace: bool = False
    """As in a container: processes, mounts, network, host name of its own. `attach` runs inside as well."""
    release: Callable[[Path, int], object] | None = None
    """Ends what the rank waits for, given the job's folder and port. The job must then end well."""

    @property
    def program(self) -> Path:
        own = JOB.parent / "programs" / f"{self.kind}.py"
        return own if own.exists() else JOB


HANGS = (
    Hang("sleeps; nothing on but py-spy", "sleep"),
    Hang("takes another branch; nothing on but py-spy", "branch"),
    Hang("leaves a loop early; nothing on but py-spy", "skip"),
    Hang("waits for its loader's queue; debug server", "no_batch", {"DEBUG_SERVER": "1"}),
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

_GUARD = {"FORKPOINT": "1", "FORKPOINT_STALL_S": "3000"}


def _store_port(port: int) -> int:
    return port + 500


def _announce(_folder: Path, port: int) -> None:
    code = (
        f"from torch.distributed import TCPStore; TCPStore('127.0.0.1', {_store_port(port)}).set('tokenizer/v3', '1')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


PROGRAMS = (
    Hang("DDP, shards of different lengths; nothing on but py-spy", "ddp_uneven", who=3),
    Hang("a barrier in evaluation; container without ptrace, guard", "eval_barrier", _GUARD, who=1, in_namespace=True),
    Hang("a lock that a thread holds; nothing on but py-spy", "lock", who=0),
    Hang(
        "a loader's worker reads; another user, py-spy",
        "loader",
        who=2,
        other_user=True,
        release=lambda folder, _port: (folder / "record").write_bytes(b"done"),
    ),
    Hang(
        "a pipeline stage drops a batch; container without ptrace, debug server",
        "pipeline",
        {"DEBUG_SERVER": "1"},
        who=1,
        in_namespace=True,
    ),
    Hang("objects gathered by one rank alone; nothing on but py-spy", "objects", who=2),
    Hang(
        "joins a thread that uploads; nothing on but py-spy",
        "upload_thread",
        who=3,
        release=lambda folder, _port: (folder / "upload_3").read_bytes(),
    ),
    Hang("waits for a key of the store; guard", "store_wait", _GUARD, who=1, release=_announce),
)
"""Programs of different styles, begun by torchrun."""

_PIPE = {
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "{folder}/pipe_",
    "TORCH_FR_DUMP_TEMP_FILE": "{folder}/dump_",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
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
    _on_nccl("waits for its loader's queue; debug server", "no_batch", {"DEBUG_SERVER": "1"}),
    _on_nccl("reads from storage; no ptrace, guard", "read", _GUARD, without_ptrace=True),
    _on_nccl("runs a loop without end; guard", "busy", _GUARD),
    _on_nccl("groups in another order; dump pipe and py-spy", "order", _PIPE),
    _on_nccl("sleeps; nothing on but py-spy", "sleep", {}),
)


_ON_NCCL = {
    "ddp_uneven": ("DDP, shards of different lengths; dump pipe and py-spy", _PIPE),
    "loader": ("a loader's worker reads; another user, dump pipe and py-spy", _PIPE),
    "objects": ("objects gathered by one rank alone; guard", _GUARD),
    "upload_thread": ("joins a thread that uploads; dump pipe and py-spy", _PIPE),
}
"""Where more is on than on gloo: stacks alone do not show what NCCL waits for."""
NCCL_PROGRAMS = tuple(
    replace(hang, name=name, env={**_ON_ONE_GPU, **env})
    for hang in PROGRAMS
    for name, env in (_ON_NCCL.get(hang.kind, (hang.name, hang.env)),)
)

_SERVER = {"DEBUG_SERVER": "1"}


def _read(name: str) -> Callable[[Path, int], object]:
    return lambda folder, _port: (folder / name).read_bytes()


def _second(*hangs: Hang) -> tuple[Hang, ...]:
    return tuple(replace(hang, env={**_ON_ONE_GPU, **hang.env}) for hang in hangs)


SECOND = (
    Hang("a micro batch is missing; nothing on but py-spy", "accumulation", who=1),
    Hang("a checkpoint's file system; container without ptrace, debug server", "checkpoint", _SERVER, who=0,
         in_namespace=True, release=_read("model.pt")),
    Hang("early stopping by a loss of its own; container without ptrace, guard", "early_stop", _GUARD, who=3, in_namespace=True),
    Hang("recovers from an error alone; nothing on but py-spy", "recover", who=2),
    Hang("a decoder that does not end; another user, py-spy", "decode", who=1, other_user=True,
         release=lambda folder, _port: (folder / "video_1_3").write_text("frame")),
    Hang("experts, no tokens to exchange; guard", "experts", _GUARD, who=2),
)  # fmt: skip
"""Programs that attach was not made with."""
NCCL_SECOND = _second(
    Hang("sharded model, run once more by one rank; dump pipe and py-spy", "sharded", _PIPE, who=2),
    Hang("a metrics server that does not answer; another user, dump pipe and py-spy", "tracker", _PIPE, who=0, other_user=True),
    Hang("a lock that a dead process left; container without ptrace, debug server", "extension", _SERVER, who=3,
         in_namespace=True, release=lambda folder, _port: (folder / "build_3" / "lock").unlink()),
    Hang("a ring that one rank leaves; dump pipe and py-spy", "ring", _PIPE, who=2),
    Hang("an auxiliary loss at random; container without ptrace, guard", "auxiliary", _GUARD, who=1, in_namespace=True),
    Hang("a kernel that does not end; guard", "kernel", _GUARD, who=1),
)  # fmt: skip

THIRD = (
    Hang("a filter leaves nothing of a micro batch; nothing on but py-spy", "token_filter", who=2),
    Hang("a file's lock that a program inherited; container without ptrace, guard", "feature_cache", _GUARD, who=1, in_namespace=True),
    Hang("a queue whose producer has died; nothing on but py-spy", "prefetch", who=3),
    Hang("settings on a mount that does not answer; container without ptrace, debug server", "slow_mount", _SERVER, who=0,
         in_namespace=True),
    Hang("a stage that expects one micro batch more; nothing on but py-spy", "stages", who=2),
    Hang("a snapshot's error that nobody sees; another user, py-spy", "snapshot", who=0, other_user=True),
)  # fmt: skip
"""Twelve more programs, whose truth was written down before attach was read."""
NCCL_THIRD = _second(
    Hang("overflow, seen by one rank; container without ptrace, guard", "overflow", _GUARD, who=2, in_namespace=True),
    Hang("members of a group that only one rank counts; container without ptrace, debug server", "elastic_group", _SERVER, who=3,
         in_namespace=True),
    Hang("a metrics thread that has died; dump pipe and py-spy", "metrics_thread", _PIPE, who=2),
    Hang("a program asks for a password; another user, dump pipe and py-spy", "credentials", _PIPE, who=3, other_user=True),
    Hang("experts drop tokens after the counts; guard", "capacity", _GUARD, who=1),
    Hang("a kernel on a stream of its own; guard", "side_stream", _GUARD, who=1),
)  # fmt: skip

HEALTHY = Hang("nothing: all ranks go on; nothing on but py-spy", "healthy")
"""Nobody may be named."""


@dataclass
class Running:
    hang: Hang
    folder: Path
    port: int
    ranks: list["subprocess.Popen[bytes]"]
    """Or the one launcher of all."""

    def states(self) -> list[tuple[int, int, str]]:
        """Pid, start and whether it is stopped: sleeping and running change from moment to moment. Launcher and loaders too."""
        pids = [pid for pid in list_pids(PROC) if str(self.folder) in _command(pid)]
        found = [(pid, read_state(pid)) for pid in pids]
        return [(pid, state.started, "T" if state.is_stopped else "lives") for pid, state in found if state]

    def attach(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """`forkpoint attach`, with what it is allowed to do here."""
        argv = [sys.executable, "-m", "forkpoint", "attach", *options]
        if self.hang.in_namespace:
            (first,) = Path(f"/proc/{self.ranks[0].pid}/task/{self.ranks[0].pid}/children").read_text().split()
            argv = ["nsenter", f"--target={first}", "--pid", "--mount", "--uts", "--ipc", "--net", *_CONFINED, *argv]
        forbidden = self.hang.without_ptrace or self.hang.in_namespace
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, preexec_fn=forbid_ptrace if forbidden else None
        )

    def goes_on(self) -> bool:
        """Once released, it ends well."""
        assert self.hang.release is not None
        self.hang.release(self.folder, self.port)
        return all(rank.wait(_STARTED_S) == 0 for rank in self.ranks)


def _command(pid: int) -> str:
    try:
        return Path(f"{PROC}/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def running(hang: Hang, port: int, starts_s: float = _STARTED_S) -> Generator[Running]:
    """Until it hangs, and as long as it is looked at."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o777)
        ranks = [_start(hang, rank, port, folder) for rank in range(hang.world if hang.program == JOB else 1)]
        try:
            wait_for(lambda: all((folder / f"begun_{rank}").exists() for rank in range(hang.world)), starts_s)
            if hang.kind == "stopped":
                wait_for((folder / "ready").exists)
                os.kill(ranks[WHO].pid, signal.SIGSTOP)
            time.sleep(_SETTLES_S)
            yield Running(hang, folder, port, ranks)
        finally:
            for pid, *_ in Running(hang, folder, port, ranks).states():  # ranks outlive a launcher that is killed
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for rank in ranks:
                rank.wait()


def _start(hang: Hang, rank: int, port: int, folder: Path) -> "subprocess.Popen[bytes]":
    """One rank of job.py, or torchrun with all ranks of a program."""
    if hang.program == JOB:
        world = {"WORLD_SIZE": hang.world, "LOCAL_WORLD_SIZE": hang.world}
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port, **world}
        argv = [sys.executable, str(JOB), hang.kind, str(folder)]
    else:
        numbers = {"STORE_PORT": _store_port(port)}
        launcher = ("-m", "torch.distributed.run", f"--nproc-per-node={hang.world}", "--master-addr=127.0.0.1")
        argv = [sys.executable, *launcher, f"--master-port={port}", "--no-python", "sh", "-c", _EACH_A_HOST]
        argv += [sys.executable, str(hang.program), str(folder)]
    told = {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }
    told |= {"HOME": str(folder)} if hang.other_user else {}
    given = {name: value.format(folder=folder) for name, value in {**hang.env, **hang.by_rank.get(rank, {})}.items()}
    wrapped = [*(_AS_NOBODY if hang.other_user else ()), *(_IN_NAMESPACE if hang.in_namespace else ()), *argv]
    with (folder / f"log_rank_{rank}.txt").open("w") as log:
        return subprocess.Popen(
            wrapped,
            cwd=folder,
            env={**os.environ, **told, **given},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for(is_true: Callable[[], bool], limit_s: float = _STARTED_S) -> None:
    deadline = time.monotonic() + limit_s
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
