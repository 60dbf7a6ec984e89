"""Evidence on other machines: ssh, srun and kubectl run one fixed script and send a tar; URLs are read with fsspec."""

import os
import re
import shlex
import signal
import subprocess
import tarfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import PurePosixPath
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Any, BinaryIO, cast

from forkpoint.errors import UsageError
from forkpoint.evidence.archives import SmallHeader
from forkpoint.evidence.text import clean
from forkpoint.gather.folder import CollectNote, Copied, EvidenceFolder, Original

# ---------------------------------------------------------------------------------------------------------------------
# Runs the site's tools: as argument lists, with limits on time and output.

_MAX_ANSWER = 16 << 20
_MAX_COMPLAINT = 4096
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class CallFailed:
    why: str


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
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaint, start_new_session=True
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
            heard.failed = CallFailed(f"{argv[0]}: {why}{_complaint(complaint)}")


def answer_of(argv: Sequence[str], limit_s: float) -> str | CallFailed:
    """All it prints."""
    with running(argv, b"", limit_s) as tool:
        answer = tool.answer.read(_MAX_ANSWER) if tool.failed is None else b""
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


def _complaint(said: IO[bytes]) -> str:
    said.seek(0)
    text = clean(said.read(_MAX_COMPLAINT).decode("utf-8", "replace"))
    return f" ({text})" if text else ""


# ---------------------------------------------------------------------------------------------------------------------
# The only command that runs on other machines: a fixed script that finds files and packs them.
#
# Nothing that a user or a cluster says becomes part of it. The path to look at is a line on its standard input; an
# empty line means torch's usual places. It reads, and changes nothing.

_EVIDENCE_NAMES = (
    "*rank*", "*trace*", "*.log", "*.out", "*.err", "*.txt", "stdout*", "stderr*", "error.json", "*.log.gz", "*.txt.gz",
    "*.out.gz", "*.err.gz", "*.log.zst", "*.txt.zst",
)  # fmt: skip
"""Evidence by name. Files whose content is something else are dropped on arrival."""
_LARGE = 131072
"""In blocks of 512 bytes: 64 MiB, more than a dump has."""

_ANY = " -o ".join(f"-name '{name}'" for name in _EVIDENCE_NAMES)
_USUAL = (
    '"$HOME/.cache/torch/"*trace_rank_* "${XDG_CACHE_HOME:-/nonexistent}/torch/"*trace_rank_* /tmp/nccl_trace_rank_* '
    '"${TORCH_FR_DUMP_TEMP_FILE:-/nonexistent}"* "${TORCH_NCCL_DEBUG_INFO_TEMP_FILE:-/nonexistent}"* '
    '"${FORKPOINT_DIR:-/nonexistent}"'
)
_FIND = f'find "$@" -type f ! -path "*$newline*" \\( {_ANY} \\)'
SCRIPT = (
    "IFS= read -r place; "
    "newline=$(printf '\\nx'); newline=${newline%x}; "  # a name with one in it would be two names for tar
    "case $place in "
    f"'') set -- {_USUAL} ;; "
    '"~/"*) set -- "$HOME/${place#??}" ;; '
    '*) set -- "$place" ;; '
    "esac; "
    # Small files first: dumps are small, and one huge log must not crowd them out.
    f"{{ {_FIND} -size -{_LARGE} 2>/dev/null; {_FIND} -size +{_LARGE - 1} 2>/dev/null; }} "
    "| tar -cf - -T - 2>/dev/null"
)
"""POSIX sh, on one line. Every name begins with a slash, so that tar takes none for an option."""


# ---------------------------------------------------------------------------------------------------------------------
# Ways to evidence on other machines: all are argument lists for the site's own tools, and run `SCRIPT`.

_PATH = re.compile(r"(?:/|~/)[^\0\r\n]{0,4000}")


@dataclass(frozen=True, slots=True)
class Target:
    """One machine, or one container."""

    label: str
    argv: tuple[str, ...]
    """Runs the script there, with its standard input and output."""
    log_argv: tuple[str, ...] | None = None
    """Prints the log that the cluster keeps of it."""


@dataclass(frozen=True, slots=True)
class Remote:
    place: str
    """As it was asked for."""
    path: str
    """To look at; empty for the usual places."""
    find_targets: Callable[[float], Sequence[Target] | CallFailed]
    """Given the seconds that are left."""


def checked_path(place: str, path: str) -> str:
    """Raises UsageError."""
    if path and not _PATH.fullmatch(path):
        raise UsageError(f"{place}: the path must begin with / or ~/")
    return path


# ---------------------------------------------------------------------------------------------------------------------
# `ssh:HOST:PATH`: with the user's own configuration and keys; a host that asks for a password is skipped.

SSH_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]{0,63}@)?[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
SSH_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


def parse_ssh(place: str) -> Remote:
    """Raises UsageError."""
    host, _, path = place.removeprefix("ssh:").partition(":")
    if not SSH_HOST.fullmatch(host):
        raise UsageError(f"{place}: must be ssh:HOST:PATH")
    # ssh hands its command to a shell on the other side; this one is always the same.
    argv = ("ssh", *SSH_OPTIONS, "--", host, f"exec sh -c {shlex.quote(SCRIPT)}")
    return Remote(place, checked_path(place, path), lambda _: (Target(host, argv),))


# ---------------------------------------------------------------------------------------------------------------------
# `srun:JOBID[:PATH]`: on each node of a running Slurm job, as a step beside it that takes none of its resources.

_SLURM_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
_SLURM_NODE = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
_SLURM_NODE_LIST = re.compile(r"[A-Za-z0-9_][\w.,\[\]-]{0,60000}", re.ASCII)


def parse_srun(place: str) -> Remote:
    """Raises UsageError."""
    job, _, path = place.removeprefix("srun:").partition(":")
    if not _SLURM_JOB.fullmatch(job):
        raise UsageError(f"{place}: must be srun:JOBID or srun:JOBID:PATH")
    return Remote(place, checked_path(place, path), lambda limit_s: _nodes(job, limit_s))


def _nodes(job: str, limit_s: float) -> tuple[Target, ...] | CallFailed:
    listed = answer_of(("squeue", "--noheader", f"--jobs={job}", "--format=%N"), limit_s)
    if isinstance(listed, CallFailed):
        return listed
    if not _SLURM_NODE_LIST.fullmatch(listed.strip()):
        return CallFailed(f"job {job} has no nodes: has it ended? Name its folder instead")
    named = answer_of(("scontrol", "show", "hostnames", listed.strip()), limit_s)
    if isinstance(named, CallFailed):
        return named
    return tuple(Target(node, _srun_argv(job, node)) for node in named.split() if _SLURM_NODE.fullmatch(node))


def _srun_argv(job: str, node: str) -> tuple[str, ...]:
    step = ("--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--quiet")
    return ("srun", *step, "sh", "-c", SCRIPT)


# ---------------------------------------------------------------------------------------------------------------------
# `kubectl:NAMESPACE/SELECTOR[:PATH]`: in each pod that the selector finds, and the log that the cluster keeps of it.
#
# A container needs sh, find, grep and tar for its files; its log needs nothing.

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SELECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./=!,() -]{0,1000}")
_POD = re.compile(r"pod/([a-z0-9][a-z0-9.-]{0,252})")


def parse_kubectl(place: str) -> Remote:
    """Raises UsageError."""
    namespace, _, rest = place.removeprefix("kubectl:").partition("/")
    selector, _, path = rest.partition(":")
    if not _NAMESPACE.fullmatch(namespace) or not _SELECTOR.fullmatch(selector):
        raise UsageError(f"{place}: must be kubectl:NAMESPACE/SELECTOR, as in kubectl:train/job-name=llama")
    return Remote(place, checked_path(place, path), lambda limit_s: _pods(namespace, selector, limit_s))


def _pods(namespace: str, selector: str, limit_s: float) -> tuple[Target, ...] | CallFailed:
    front = ("kubectl", f"--namespace={namespace}")
    listed = answer_of((*front, "get", "pods", f"--selector={selector}", "--output=name"), limit_s)
    if isinstance(listed, CallFailed):
        return listed
    pods = [match[1] for line in listed.split() if (match := _POD.fullmatch(line))]
    if not pods:
        return CallFailed(f"no pod in {namespace} is selected by {selector}")
    return tuple(
        Target(
            pod, (*front, "exec", "--stdin", pod, "--", "sh", "-c", SCRIPT), (*front, "logs", "--all-containers", pod)
        )
        for pod in pods
    )


# ---------------------------------------------------------------------------------------------------------------------
# Parses a place that the user named, by its prefix.

_PARSERS = {"ssh:": parse_ssh, "srun:": parse_srun, "kubectl:": parse_kubectl}


def parse_remote(place: str) -> Remote | None:
    """None: a path of this machine, or an address for fsspec. Raises UsageError."""
    parse = next((parse for front, parse in _PARSERS.items() if place.startswith(front)), None)
    return parse(place) if parse else None


# ---------------------------------------------------------------------------------------------------------------------
# Receives a tar from another machine: only plain files are kept, under safe names.

_BLOCK = 1 << 18
_NONE: Mapping[str, Callable[[bytes], None]] = {}
_BROKEN = (OSError, EOFError, tarfile.TarError, ValueError)


@dataclass(slots=True)
class _Odd:
    """Members of a tar other than plain files."""

    others: int = 0


def copy_remote(remote: Remote, target: Target, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """Copies everything one machine has; notes what it could not send."""
    place = f"{remote.place} {target.label}" if target.label not in remote.place else remote.place
    got = _receive(remote, target, place, folder)
    if target.log_argv:
        got += _receive_log(target, target.log_argv, place, folder)
    return got


def _receive(remote: Remote, target: Target, place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    got: list[Copied | CollectNote] = []
    with running(target.argv, remote.path.encode() + b"\n", folder.meter.seconds_left) as tool:
        if tool.failed is None:
            got += unpack(tool.answer, target.label, place, folder)
    if isinstance(tool.failed, CallFailed):
        got.append(CollectNote(place, tool.failed.why))
    elif not got:
        got.append(CollectNote(place, "nothing found there"))
    return got


def unpack(
    stream: BinaryIO,
    label: str,
    place: str,
    folder: EvidenceFolder,
    apart: Mapping[str, Callable[[bytes], None]] = _NONE,
) -> Iterator[Copied | CollectNote]:
    """`apart`: files that are handed over instead, by name."""
    odd = _Odd()
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK, tarinfo=SmallHeader) as archive:
            for info, opened in _plain_files(archive, odd):
                name = str(PurePosixPath("/", info.name))
                if info.name in apart:
                    apart[info.name](opened.read(_MAX_ANSWER))
                    continue
                done = folder.keep(Original(place, label, name, info.size, float(info.mtime)), opened)
                if isinstance(done, str):
                    yield CollectNote(place, f"{clean(name)}: {done}")
                    break
                if done is not None:
                    yield done
                    if done.cut:  # no room is left, or nothing more comes: the rest is not waited for
                        break
    except tarfile.ReadError as error:
        if "empty file" not in str(error):  # it found nothing: its exit code says why, or there is nothing
            yield CollectNote(place, clean(f"stopped sending: {error}"))
    except _BROKEN as error:
        yield CollectNote(place, clean(f"stopped sending: {error}"))
    if odd.others:
        yield CollectNote(place, f"{odd.others} links, devices or pipes were sent and not kept")


def _plain_files(archive: tarfile.TarFile, odd: _Odd) -> Iterator[tuple[tarfile.TarInfo, BinaryIO]]:
    for info in archive:
        archive.members = []  # pyright: ignore[reportAttributeAccessIssue] - it would keep every header
        opened = archive.extractfile(info) if info.isreg() else None
        if opened is None:
            odd.others += not info.isdir()
        else:
            yield info, cast("BinaryIO", opened)


def _receive_log(
    target: Target, argv: tuple[str, ...], place: str, folder: EvidenceFolder
) -> list[Copied | CollectNote]:
    with running(argv, b"", folder.meter.seconds_left) as tool:
        done = None
        if tool.failed is None:
            done = folder.keep(Original(place, target.label, f"/{target.label}.log", None, None), tool.answer)
    got: list[Copied | CollectNote] = [done] if isinstance(done, Copied) else []
    if isinstance(done, str):
        got.append(CollectNote(place, done))
    return [*got, CollectNote(place, tool.failed.why)] if tool.failed else got


# ---------------------------------------------------------------------------------------------------------------------
# `s3://`, `gs://`, `hf://`, `memory://`: whatever fsspec has a driver for.

_URL_LABEL = "url"
_URL_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


def copy_url(place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """All evidence below the address. Raises UsageError where fsspec or its driver is not installed."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - for such places alone  # pyright: ignore[reportMissingTypeStubs] - it has none
    except ModuleNotFoundError as error:
        raise UsageError(f"{place}: needs fsspec: pip install 'forkpoint[collect]'") from error
    try:
        system, root = url_to_fs(place)
        found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    except ImportError as error:
        raise UsageError(f"{place}: {error}") from error
    except Exception as error:  # noqa: BLE001 - every driver has exceptions of its own, and the other places go on
        return [CollectNote(place, f"cannot be listed ({type(error).__name__}: {error})")]
    if not found:
        return [CollectNote(place, "nothing there")]
    got: list[Copied | CollectNote] = []
    for name, facts in sorted(found.items(), key=lambda item: (item[1].get("size") or 0, item[0])):
        original = Original(place, _URL_LABEL, name, _number(facts.get("size")), _time(facts))
        try:
            with system.open(name, "rb") as stream:
                done = folder.keep(original, cast("BinaryIO", stream))
        except Exception as error:  # noqa: BLE001 - as above
            done = f"cannot be read ({type(error).__name__}: {error})"
        if isinstance(done, str):
            got.append(CollectNote(place, f"{name}: {done}"))
        elif done is not None:
            got.append(done)
    return got


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _time(facts: dict[str, Any]) -> float | None:
    for name in _URL_TIMES:
        value = facts.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
