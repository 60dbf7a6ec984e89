"""Runs the site's tools (ssh, srun, squeue, kubectl, dmesg): as argument lists, with limits on time and output."""

import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
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
