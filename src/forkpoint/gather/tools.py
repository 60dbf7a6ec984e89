"""Runs the site's tools (ssh, srun, squeue, kubectl, dmesg): as argument lists, with limits on time and output."""

import os
import signal
import subprocess
import tomllib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, BinaryIO, cast

from forkpoint.evidence.text import LIMIT, clean

MAX_ANSWER = 16 << 20
_MAX_COMPLAINT = 4096
_GRACE_S = 2.0
_SLURM_ITSELF = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True, slots=True)
class CallFailed:
    why: str
    said: tuple[str, ...] = ()
    """The last lines of the tool's stderr."""


@dataclass(slots=True)
class Running:
    """A tool while its output is read."""

    answer: BinaryIO
    failed: CallFailed | None = None
    """Set when the tool has ended."""


@contextmanager
def running(argv: Sequence[str], question: bytes, limit_s: float) -> Generator[Running]:
    """The tool's standard output as a stream. The tool and its children are killed when the time is up or the reader is done."""
    with TemporaryFile() as complaint:
        try:
            process = subprocess.Popen(  # noqa: S603 - a fixed list of arguments, by the name of a known tool
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaint,
                env=_environ(),
                start_new_session=True,
            )
        except OSError as error:
            yield Running(BytesIO(), CallFailed(f"{argv[0]}: cannot be run ({error.strerror})"))
            return
        timer = Timer(limit_s, _kill, [process])
        timer.start()
        heard = Running(cast("BinaryIO", process.stdout))
        try:
            _tell(process, question)
            yield heard
        finally:
            was_over = not timer.is_alive()
            timer.cancel()
            code = _wait(process)
            assert process.stdout is not None
            process.stdout.close()
        if code or was_over:
            why = f"not done after {limit_s:.0f} s" if was_over else f"exit code {code}"
            said = _complaint(complaint)
            heard.failed = CallFailed(f"{argv[0]}: {why}{_ending(said)}", said)


def _environ() -> dict[str, str]:
    """Without the variables of a Slurm job that this may run in: srun takes them as options, and would label its output or
    wait for processors.
    """
    kept = (name for name in os.environ if name in _SLURM_ITSELF or not name.startswith(("SLURM_", "SRUN_")))
    return {name: os.environ[name] for name in kept}


def answer_of(argv: Sequence[str], limit_s: float) -> str | CallFailed:
    """All its standard output."""
    with running(argv, b"", limit_s) as tool:
        answer = tool.answer.read(MAX_ANSWER) if tool.failed is None else b""
    return tool.failed or answer.decode("utf-8", "replace")


def _tell(process: "subprocess.Popen[bytes]", question: bytes) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already: its exit code says more
        process.stdin.write(question)
        process.stdin.close()


def _wait(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(_GRACE_S if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        _kill(process)
        return process.wait()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _complaint(said: IO[bytes]) -> tuple[str, ...]:
    """The end of stderr: greetings and warnings come first, the reason last."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _MAX_COMPLAINT))
    lines = (clean(line) for line in said.read(_MAX_COMPLAINT).decode("utf-8", "replace").splitlines())
    return tuple(line for line in lines if line)


def _ending(said: Sequence[str]) -> str:
    text = " ".join(said)
    if not text:
        return ""
    return f" ({text})" if len(text) <= LIMIT else f" (…{text[1 - LIMIT :]})"


# ---------------------------------------------------------------------------------------------------------------------
# Why a machine cannot be reached: the errors of ssh, srun and squeue as a reason and the next step, from `failures.toml`.
#
# Their own output follows in brackets. It may contain what an untrusted server sent, so no part of it becomes a command that
# people are told to run.

BY_SSH = "ask its nodes by ssh (collect ssh:NODE:PATH, diagnose --cluster ssh --hosts A,B, attach --hosts A,B)"
_REASONS = Path(__file__).with_name("failures.toml")
_BY_TOOL = {"ssh": "ssh", "srun": "slurm", "squeue": "slurm", "scontrol": "slurm"}
_BY_SSH_ITSELF = "exit code 255"
_BY_SLURM_ITSELF = ("srun: ", "squeue: ", "scontrol: ", "slurm_")


def tell_failure(host: str, failed: CallFailed, longer: str) -> str:
    """The reason and the next step; if the error is unknown, only the tool's own output. `longer`: the option that allows
    more time.
    """
    tool = failed.why.partition(":")[0]
    if tool in _BY_TOOL and "cannot be run" in failed.why:
        return f"{failed.why}: {tool} is not installed here; run forkpoint on a machine that has it"
    if "not done after" in failed.why:
        return f"{host} is down or slow; ask again with a longer {longer} ({failed.why})"
    words = _own_words(tool, failed)
    known = tomllib.loads(_REASONS.read_text("utf-8"))
    reasons = known[_BY_TOOL[tool]] if tool in _BY_TOOL else ()
    found = next((one["text"] for one in reasons if any(sign in line for sign in one["signs"] for line in words)), None)
    return f"{found.format(host=host, by_ssh=BY_SSH, again=known['again'])} ({failed.why})" if found else failed.why


def _own_words(tool: str, failed: CallFailed) -> list[str]:
    """Without the output of the script on the other machine, which both tools pass on with its exit code."""
    if tool == "ssh":
        return list(failed.said) if _BY_SSH_ITSELF in failed.why else []
    return [line for line in failed.said if line.startswith(_BY_SLURM_ITSELF)]
