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


# ---------------------------------------------------------------------------------------------------------------------
# Why a machine cannot be reached: the errors of ssh, srun and squeue as a reason and the next step.
# #
# # Their own output follows in brackets. It may contain what an untrusted server sent, so no part of it becomes a command that
# # people are told to run.


@dataclass(frozen=True, slots=True)
class _Reason:
    signs: tuple[str, ...]
    """The tool printed one of these."""
    text: str


BY_SSH = "ask its nodes by ssh (collect ssh:NODE:PATH, diagnose --cluster ssh --hosts A,B, attach --hosts A,B)"
_AGAIN = "its evidence stays on its disk: ask again once it is back"

_SSH = (
    _Reason(
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "its ssh host key has changed: {host} was reinstalled, or another machine answers under its"
        " name. Ask its administrator; then `ssh {host}` shows how to remove the old key",
    ),
    _Reason(
        ("Host key verification failed",),
        "its ssh host key is not known here: `ssh {host}` once, and compare the fingerprint before you accept it",
    ),
    _Reason(
        ("Permission denied (", "Too many authentication failures"),
        "it refuses your key: `ssh {host}` must work without a password (ssh-copy-id {host}, or ssh-add where an agent holds"
        " the key)",
    ),
    _Reason(
        ("Could not resolve hostname", "Name or service not known"),
        "this host name cannot be resolved: give a name with which `ssh {host}` works",
    ),
    _Reason(
        ("Connection refused",),
        "no ssh server answers there: is {host} up, and does it listen on this port? " + _AGAIN,
    ),
    _Reason(
        ("timed out", "No route to host", "Network is unreachable", "Host is down"),
        "{host} does not answer: it is down, frozen or disconnected; " + _AGAIN,
    ),
    _Reason(
        ("Connection closed", "Connection reset", "kex_exchange_identification", "Broken pipe"),
        "{host} closed the connection: its ssh server is overloaded or was stopped; ask again",
    ),
)

_SLURM = (
    _Reason(
        ("Unable to contact slurm controller",),
        "slurmctld does not answer (`scontrol ping`): wait for it, or " + BY_SSH,
    ),
    _Reason(
        ("Invalid job id", "Job has expired"),
        "Slurm does not know this job (any more): name the folder that it wrote to, or " + BY_SSH,
    ),
    _Reason(
        ("already completing or completed", "Unable to confirm allocation"),
        "the job ended meanwhile: name the folder that it wrote to, or " + BY_SSH,
    ),
    _Reason(
        ("Access/permission denied", "Invalid user id"),
        "the job belongs to another user: ask as that user or as root",
    ),
    _Reason(
        ("munge", "authentication", "Invalid job credential"),
        "Slurm does not accept the credentials: does munged run on both sides, with one key and with clocks that differ by"
        " less than five minutes?",
    ),
    _Reason(
        ("Zero Bytes were transmitted",),
        "slurmd on {host} closed the connection without an answer: usually it does not accept the credentials. Does munged run"
        " there, and does its clock differ by less than five minutes? Its log says which (`scontrol show config`: SlurmdLogFile)",
    ),
    _Reason(
        (
            "Communication connection failure",
            "Node failure on",
            "Socket timed out",
            "Unable to contact",
            "not responding",
        ),
        "Slurm cannot reach {host}: it is down, frozen or disconnected (`scontrol show node {host}`); " + _AGAIN,
    ),
    _Reason(
        ("not in this job's allocation", "Requested node configuration is not available", "node list"),
        "{host} is no longer a node of this job: " + BY_SSH,
    ),
)

_BY_TOOL = {"ssh": _SSH, "srun": _SLURM, "squeue": _SLURM, "scontrol": _SLURM}
_BY_SSH_ITSELF = "exit code 255"
_BY_SLURM_ITSELF = ("srun: ", "squeue: ", "scontrol: ", "slurm_")


def tell_failure(host: str, failed: CallFailed, longer: str) -> str:
    """The reason and the next step; if the error is unknown, only the tool's own output. `longer`: the option that allows
    more time.
    """
    tool, reasons = failed.why.partition(":")[0], _BY_TOOL.get(failed.why.partition(":")[0], ())
    if reasons and "cannot be run" in failed.why:
        return f"{failed.why}: {tool} is not installed here; run forkpoint on a machine that has it"
    if "not done after" in failed.why:
        return f"{host} is down or slow; ask again with a longer {longer} ({failed.why})"
    words = _own_words(tool, failed)
    found = next((reason for reason in reasons if any(sign in line for sign in reason.signs for line in words)), None)
    return f"{found.text.format(host=host)} ({failed.why})" if found else failed.why


def _own_words(tool: str, failed: CallFailed) -> list[str]:
    """Without the output of the script on the other machine, which both tools pass on with its exit code."""
    if tool == "ssh":
        return list(failed.said) if _BY_SSH_ITSELF in failed.why else []
    return [line for line in failed.said if line.startswith(_BY_SLURM_ITSELF)]
