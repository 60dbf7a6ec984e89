"""Nodes of a cluster on this machine. Each is a set of namespaces: a host name, processes and a disk of its own. A node
that crashes takes everything that ran on it with it; one that is frozen still accepts connections and answers nothing.

The checkout, its environment and the cluster's folder are what all nodes share, as on a cluster with a network disk.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
"""Of the environment that has forkpoint, which all nodes see."""
_LIMIT_S = 300.0
_DISK = "64m"
_NAMESPACES = ("--mount", "--uts", "--pid")


def wait_for(is_true: Callable[[], object], what: str, limit_s: float = _LIMIT_S) -> None:
    until = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < until, f"not after {limit_s:g} s: {what}"
        time.sleep(0.1)


def why_no_nodes() -> str | None:
    """Why there can be none on this machine."""
    if os.geteuid() != 0:
        return "nodes are namespaces with disks of their own, which root alone may make"
    if missing := [tool for tool in ("unshare", "nsenter", "setpriv", "mount") if not shutil.which(tool)]:
        return f"{missing[0]} is not installed (apt-get install util-linux)"
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"this machine makes no namespaces: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass
class Node:
    """`disk` is one path, behind which every node has a file system of its own."""

    name: str
    root: Path
    commands: Sequence[str]
    """Lines of sh that start its servers, in the background."""
    environ: Mapping[str, str] = field(default_factory=dict)
    disk_size: str = _DISK
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def disk(self) -> Path:
        return self.root / "disk"

    def start(self) -> None:
        script = "\n".join(
            [
                "set -e",
                f"hostname {self.name}",
                f"mount -t tmpfs -o size={self.disk_size} disk {shlex.quote(str(self.disk))}",
                f"mkdir {shlex.quote(str(self.disk))}/home",
                f"mount --bind {shlex.quote(str(self.root))}/hosts /etc/hosts",
                f"mount --bind {shlex.quote(str(self.root))}/ssh_config /etc/ssh/ssh_config",
                *self.commands,
                f"touch {shlex.quote(str(self.root))}/up-{self.name}",
                "set +e",
                "while :; do wait; sleep 1; done",
            ]
        )
        up = self.root / f"up-{self.name}"
        up.unlink(missing_ok=True)
        with (self.root / f"{self.name}.log").open("ab") as log:
            # With the process that tests, and with `unshare`, everything on the node ends.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "--fork", "--mount-proc", "--kill-child",
                 "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environ},
            )  # fmt: skip
        wait_for(lambda: up.exists() or self._process.poll() is not None, f"{self.name} is up")
        assert self._process.poll() is None, (self.root / f"{self.name}.log").read_text()

    def crash(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def begin(self, *argv: str, **environ: str) -> "subprocess.Popen[str]":
        """A command on this node."""
        assert self._process is not None
        init = _children(self._process.pid)[0]
        return subprocess.Popen(
            ["nsenter", f"--target={init}", *_NAMESPACES, "--", "env", f"--chdir={self.root}", *argv],
            cwd=self.root,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200", **self.environ, **environ},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip

    def run(self, *argv: str, **environ: str) -> Said:
        process = self.begin(*argv, **environ)
        out, err = process.communicate(timeout=_LIMIT_S)
        return Said(process.returncode, out, err)

    def must(self, *argv: str, **environ: str) -> str:
        said = self.run(*argv, **environ)
        assert said.code == 0, f"{argv}: {said}"
        return said.out

    def put(self, path: str, data: bytes) -> None:
        """Onto its own disk."""
        passed = self.root / f"put-{self.name}"
        passed.write_bytes(data)
        self.must("install", "-D", "-m", "644", str(passed), str(self.disk / path))

    def _pids(self) -> list[int]:
        """All below its first process, which is not one of them: it starts nothing by itself."""
        assert self._process is not None
        found = _children(self._process.pid)
        for pid in found:
            found += _children(pid)
        return found[1:]


def _children(pid: int) -> list[int]:
    try:
        return [
            int(text)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for text in (task / "children").read_text().split()
        ]
    except OSError:
        return []
