"""A process that imports torch once. Every rank is a fork of it, which saves seconds of importing per rank.

    python -m forkpoint.rehearse.inside.starter [SCRIPT ARGS ...]

With a script it is itself a rank: one that needs a new process, but has imported what the forks have before it joins them. Without one it
reads lines of JSON, `{"ranks": [{"rank", "argv", "environ", "cwd", "log", "anew"}]}`, and answers with lines: `{"ready": true}`,
`{"started": {rank: pid}, "store": pid}`, `{"ended": pid, "code": n}`. A rank runs its script as `python script` would: the script
is the main module, errors end the process, and exit handlers run. Like torchrun's agent, it serves the store in which the ranks
meet, a new one for every run. The store is a separate process, because it has threads, and a process with threads must not be
forked.
"""

import atexit
import builtins
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import sys
import tempfile
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, NoReturn

import torch
from torch._C._distributed_c10d import TCPStore

from forkpoint.rehearse.inside.begin import begin

_LOOK_S = 0.02
_PR_SET_PDEATHSIG = 1


def main() -> None:
    # The imports of the first optimizer take longer than torch itself.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
    if sys.argv[1:]:
        _end(_run(sys.argv[1:]))
    gc.collect()
    gc.freeze()  # so that forks share this memory
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    start = _serve(answers)
    if start is not None:
        answers.close()
        words = _become(start)
        if start["anew"]:
            again = [sys.executable, "-P", "-m", "forkpoint.rehearse.inside.starter", *words]
            os.execv(sys.executable, again)  # noqa: S606 this program, with the user's command line
        _end(_run(words))


def _serve(answers: IO[str]) -> dict[str, Any] | None:
    """Returns None in the starter when its input ends, and the rank's order in each fork."""
    print(json.dumps({"ready": True}), file=answers)
    rest = b""
    while True:
        if select.select([0], [], [], _LOOK_S)[0]:
            piece = os.read(0, 1 << 20)
            if not piece:
                return None
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                pids: dict[int, int] = {}
                store, port = _fork_store()
                for start in json.loads(line)["ranks"]:
                    start["environ"] |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": port}
                    pid = os.fork()
                    if pid == 0:
                        return start
                    pids[start["rank"]] = pid
                print(json.dumps({"started": pids, "store": store}), file=answers)
        _tell_ended(answers)


def _fork_store() -> tuple[int, str]:
    """Forks the process that serves the store, which runs until it is killed. Returns its pid and port."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(0)
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(writes, str(store.port).encode())
        while True:
            signal.pause()
    os.close(writes)
    port = os.read(reads, 100).decode()
    os.close(reads)
    return pid, port


def _tell_ended(answers: IO[str]) -> None:
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            print(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}), file=answers)
    except ChildProcessError:
        return


def _become(start: dict[str, Any]) -> list[str]:
    """Gives the fork what a new process would have: its own session, environment, folder and log."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    log = os.open(start["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(start["environ"])
    os.chdir(start["cwd"])
    tempfile.tempdir = None  # cached by the parent process
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # as in a new process
    return start["argv"]


def _run(words: list[str]) -> int:
    """Runs the script and returns its exit code. Errors are printed as by the interpreter."""
    try:
        begin()
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path[0] = str(Path(words[0]).absolute().parent)
            _run_script(words[0])
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 the interpreter's own last handler
        error.__traceback__ = _of_script(error.__traceback__)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _run_script(script: str) -> None:
    """Runs the script as `__main__` through the import system, so that its filters are compiled with taps too."""
    if Path(script).is_dir():
        runpy.run_path(script, run_name="__main__")
        return
    loader = SourceFileLoader("__main__", script)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=builtins, __loader__=loader)
    sys.modules["__main__"] = main
    loader.exec_module(main)


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    """Removes the frames that started the script."""
    own = (__file__, "<frozen runpy>", "<frozen importlib._bootstrap_external>", "<frozen importlib._bootstrap>")
    while trace is not None and trace.tb_frame.f_code.co_filename in own and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _end(code: int) -> NoReturn:
    """Ends like the interpreter, but without tearing down modules, which in a fork takes longer than many jobs."""
    threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 what the interpreter calls
    atexit._run_exitfuncs()  # noqa: SLF001 as above
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
