"""Python programs of tests that need torch, as forks of one process that has imported it: most of what each of them costs.

`tests/forked.py` has such a process while it runs tests. Where there is none, a program is a process of its own.
"""

import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
ADDRESS = "FORKPOINT_TESTS_WARM"
"""Environment variable: where to ask for a fork."""
OURS = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests"}
KIND = socket.AF_UNIX, socket.SOCK_SEQPACKET
MESSAGE = 1 << 20
LOOKS_S = 0.05


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """A session of its own, which `program` ends."""

    def __init__(self, words: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - until it has ended
        env = os.environ | OURS | env
        self._asked: socket.socket | None = None
        if address := os.environ.get(ADDRESS):
            self._asked = socket.socket(*KIND)
            self._asked.connect(address)
            told = json.dumps({"words": words, "env": env, "folder": str(Path.cwd())}).encode()
            socket.send_fds(self._asked, [told], [self._out.fileno(), self._err.fileno()])
            self.pid = int(self._asked.recv(100))
        else:
            self._process = subprocess.Popen(
                [sys.executable, *words], env=env, stdout=self._out, stderr=self._err, start_new_session=True
            )
            self.pid = self._process.pid

    def finish(self) -> Done:
        code = int(self._asked.recv(100)) if self._asked else self._process.wait()
        self._out.seek(0)
        self._err.seek(0)
        return Done(code, self._out.read().decode(), self._err.read().decode(errors="replace"))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._out.close()
        self._err.close()
        if self._asked:
            self._asked.close()
        else:
            self._process.wait()


@contextlib.contextmanager
def program(*words: str, **env: str) -> Iterator[Program]:
    """`python WORDS`, with torch on one thread and the source of this checkout. Nothing of it is left at the end."""
    begun = Program(words, env)
    try:
        yield begun
    finally:
        begun.end()


def run(*words: str, **env: str) -> Done:
    with program(*words, **env) as begun:
        return begun.finish()


# ---------------------------------------------------------------------------------------------------------------------
# The process that is forked.


@contextlib.contextmanager
def serving() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, socket.socket(*KIND) as asked:
        asked.bind(f"{folder}/asked")
        asked.listen(64)
        os.environ[ADDRESS] = f"{folder}/asked"
        command = [sys.executable, __file__, str(asked.fileno())]
        # Its standard input ends when this process does, and so does it.
        with subprocess.Popen(
            command, env=os.environ | OURS, pass_fds=[asked.fileno()], stdin=subprocess.PIPE
        ) as server:
            try:
                yield
            finally:
                del os.environ[ADDRESS]
                server.kill()


@dataclass
class Forked:
    pid: int
    told: socket.socket
    """Whoever asked for it."""


def serve(asked: socket.socket) -> dict[str, Any]:
    """Returns in each fork, with what it has to run."""
    forks: list[Forked] = []
    selector = selectors.DefaultSelector()
    selector.register(asked, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select(LOOKS_S if forks else None):
            if key.fileobj is sys.stdin:
                sys.exit()
            connection, _ = asked.accept()
            message, files, _, _ = socket.recv_fds(connection, MESSAGE, 2)
            pid = os.fork()
            if pid == 0:
                os.setsid()
                for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *files]):
                    os.dup2(file, number)
                    os.close(file)
                for opened in (selector, asked, connection, *(fork.told for fork in forks)):
                    opened.close()
                return json.loads(message)
            for file in files:
                os.close(file)
            connection.send(b"%d" % pid)
            forks.append(Forked(pid, connection))
        forks = [fork for fork in forks if not is_over(fork)]


def is_over(fork: Forked) -> bool:
    pid, status = os.waitpid(fork.pid, os.WNOHANG)
    if pid:
        with contextlib.suppress(BrokenPipeError), fork.told:
            fork.told.send(b"%d" % os.waitstatus_to_exitcode(status))
    return bool(pid)


def run_words(words: list[str], env: dict[str, str], folder: str) -> None:
    """As the interpreter does."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    kind, *rest = words
    sys.argv = words if kind not in ("-c", "-m") else [kind, *rest[1:]]
    sys.path[0] = str(Path(kind).parent) if kind not in ("-c", "-m") else folder
    if kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    import torch.distributed
    import torch.nn.parallel

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()  # imports as much again, late
    gc.collect()
    gc.freeze()  # a fork that walks over it would copy it
    run_words(**serve(socket.socket(fileno=int(sys.argv[1]))))
