"""Evidence on other machines: ssh, srun and kubectl run one fixed script and send a tar; URLs are read with fsspec."""

import re
import shlex
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from forkpoint.errors import UsageError
from forkpoint.evidence.archives import SmallHeader
from forkpoint.evidence.files import shown
from forkpoint.evidence.remote import tell_driver_error
from forkpoint.evidence.text import clean
from forkpoint.gather.folder import CollectNote, Copied, EvidenceFolder, Original, noted
from forkpoint.gather.tools import BY_SSH, MAX_ANSWER, CallFailed, answer_of, running, tell_failure

# ---------------------------------------------------------------------------------------------------------------------
# The only command that runs on other machines: a fixed script that finds files and packs them.
#
# No input of a user or a cluster becomes part of it. The path is a line on its standard input; an empty line means
# torch's usual places. It only reads.

BEGIN = "forkpoint-begins-here"
"""A line with the time there: the shell's start-up files on the other machine may print something before it."""
SAY_BEGIN = f"echo {BEGIN} $(date +%s)"
_MAX_GREETING = 1 << 16
_CLOCKS_DIFFER_S = 60.0
_EVIDENCE_NAMES = (
    "*rank*", "*trace*", "*.log", "*.out", "*.err", "*.txt", "stdout*", "stderr*", "error.json", "*.log.gz", "*.txt.gz",
    "*.out.gz", "*.err.gz", "*.log.zst", "*.txt.zst",
)  # fmt: skip
"""Evidence by name. Files with other content are dropped on arrival."""
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
    f"{SAY_BEGIN}; "
    "IFS= read -r place; "
    "newline=$(printf '\\nx'); newline=${newline%x}; "  # tar would read a name with a newline as two names
    "case $place in "
    f"'') set -- {_USUAL} ;; "
    '"~/"*) set -- "$HOME/${place#??}" ;; '
    '*) set -- "$place" ;; '
    "esac; "
    # Small files first: dumps are small, and one huge log must not crowd them out.
    f"{{ {_FIND} -size -{_LARGE} 2>/dev/null; {_FIND} -size +{_LARGE - 1} 2>/dev/null; }} "
    "| tar -cf - -T - 2>/dev/null"
)
"""POSIX sh, on one line. Every name begins with a slash, so tar takes none for an option."""


# ---------------------------------------------------------------------------------------------------------------------
# Ways to evidence on other machines: all are argument lists for the site's own tools, and run `SCRIPT`.

_PATH = re.compile(r"(?:/|~/)[^\0\r\n]{0,4000}")


@dataclass(frozen=True, slots=True)
class RemoteMachine:
    """One machine, or one container."""

    label: str
    argv: tuple[str, ...]
    """Runs the script there, with its standard input and output."""
    log_argv: tuple[str, ...] | None = None
    """Prints the log that the cluster keeps for it."""


@dataclass(frozen=True, slots=True)
class RemoteMachines:
    machines: tuple[RemoteMachine, ...]
    missing: str | None = None
    """Why there may have been more of them."""


@dataclass(frozen=True, slots=True)
class Remote:
    place: str
    """As the user gave it."""
    path: str
    """Where to look; empty for the usual places."""
    find_targets: Callable[[float], RemoteMachines | CallFailed]
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
    # ssh passes its command to a shell on the other side; this one is always the same.
    argv = ("ssh", *SSH_OPTIONS, "--", host, f"exec sh -c {shlex.quote(SCRIPT)}")
    return Remote(place, checked_path(place, path), lambda _: RemoteMachines((RemoteMachine(host, argv),)))


# ---------------------------------------------------------------------------------------------------------------------
# `srun:JOBID[:PATH]`: on each node of a running Slurm job, as a step beside it that takes none of its resources.

_SLURM_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
_SLURM_NODE = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
_SRUN_CAN_GO = ("RUNNING", "SUSPENDED", "STOPPED")
_SLURM_NODE_LIST = re.compile(r"[A-Za-z0-9_][\w.,\[\]-]{0,60000}", re.ASCII)


def parse_srun(place: str) -> Remote:
    """Raises UsageError."""
    job, _, path = place.removeprefix("srun:").partition(":")
    if not _SLURM_JOB.fullmatch(job):
        raise UsageError(f"{place}: must be srun:JOBID or srun:JOBID:PATH")
    return Remote(place, checked_path(place, path), lambda limit_s: _nodes(job, limit_s))


def _nodes(job: str, limit_s: float) -> RemoteMachines | CallFailed:
    found = _find_slurm_job(job, limit_s)
    if isinstance(found, CallFailed):
        return found
    named = answer_of(("scontrol", "show", "hostnames", found.nodes), limit_s)
    if isinstance(named, CallFailed):
        return named
    nodes = [node for node in named.split() if _SLURM_NODE.fullmatch(node)]
    targets = tuple(RemoteMachine(node, _srun_argv(found.number, node)) for node in nodes)
    return RemoteMachines(targets, _lost_nodes(found.number, limit_s))


@dataclass(frozen=True, slots=True)
class _SlurmJob:
    number: str
    """For a job array the task's own id: srun takes no other."""
    nodes: str
    """As Slurm writes a list: `node[1-2]`."""


def _find_slurm_job(job: str, limit_s: float) -> _SlurmJob | CallFailed:
    """The job, or why srun cannot reach it: it is pending, has ended, is several tasks, or Slurm does not answer."""
    listed = answer_of(("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%i|%A|%T|%N"), limit_s)
    if isinstance(listed, CallFailed):
        return CallFailed(tell_failure(f"job {job}", listed, "--seconds"))
    rows = [row for line in listed.splitlines() if len(row := line.strip().split("|")) == 4]
    running_now = [row for row in rows if row[2] in _SRUN_CAN_GO and _SLURM_NODE_LIST.fullmatch(row[3])]
    if len(running_now) > 1:
        return CallFailed(f"job {job} has {len(running_now)} running tasks: name one, as in {clean(running_now[0][0])}")
    if running_now:
        return _SlurmJob(running_now[0][1], running_now[0][3])
    return CallFailed(_why_not_running(job, rows))


def _why_not_running(job: str, rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return f"Slurm does not know job {job} (any more): name the folder that it wrote to, or {BY_SSH}"
    state, nodes = clean(rows[0][2]), clean(rows[0][3])
    if not nodes:
        return f"job {job} has no nodes yet ({state})"
    return (
        f"job {job} has ended ({state}) on {nodes}, and srun only reaches running jobs: name the folder that it wrote to, or"
        f" {BY_SSH}"
    )


def _lost_nodes(job: str, limit_s: float) -> str | None:
    """Slurm removes a failed node from the list of a job that continues without it (`--no-kill`)."""
    told = answer_of(("scontrol", "show", "job", job), limit_s)
    changed = None if isinstance(told, CallFailed) else re.search(r"ResizeTime=([\dT:-]+)", told)
    if changed is None:
        return None
    return f"job {job} lost nodes at {changed[1]}, and Slurm no longer lists them (`sinfo --list-reasons` says what is down): {BY_SSH}"


def _srun_argv(job: str, node: str) -> tuple[str, ...]:
    step = ("--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--quiet")
    return ("srun", *step, "sh", "-c", SCRIPT)


# ---------------------------------------------------------------------------------------------------------------------
# `kubectl:NAMESPACE/SELECTOR[:PATH]`: files in each pod that the selector matches, and the pod's log.
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


def _pods(namespace: str, selector: str, limit_s: float) -> RemoteMachines | CallFailed:
    front = ("kubectl", f"--namespace={namespace}")
    listed = answer_of((*front, "get", "pods", f"--selector={selector}", "--output=name"), limit_s)
    if isinstance(listed, CallFailed):
        return listed
    pods = [match[1] for line in listed.split() if (match := _POD.fullmatch(line))]
    if not pods:
        return CallFailed(f"no pod in {namespace} is selected by {selector}")
    targets = (
        RemoteMachine(
            pod, (*front, "exec", "--stdin", pod, "--", "sh", "-c", SCRIPT), (*front, "logs", "--all-containers", pod)
        )
        for pod in pods
    )
    return RemoteMachines(tuple(targets))


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


def copy_remote(remote: Remote, target: RemoteMachine, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """Copies all evidence of one machine; notes what it could not send."""
    place = f"{remote.place} {target.label}" if target.label not in remote.place else remote.place
    got = _receive(remote, target, place, folder)
    if target.log_argv:
        got += _receive_log(target, target.log_argv, place, folder)
    return got


def _receive(remote: Remote, target: RemoteMachine, place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    got: list[Copied | CollectNote] = []
    with running(target.argv, remote.path.encode() + b"\n", folder.meter.seconds_left) as tool:
        if tool.failed is None:
            got += unpack(tool.answer, target.label, place, folder)
    if isinstance(tool.failed, CallFailed):
        got.append(CollectNote(place, tell_failure(target.label, tool.failed, "--seconds")))
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
    """`apart`: callbacks by file name; these files are not copied."""
    odd = Counter[str]()
    if ahead := skip_greeting(stream):
        told = f"{abs(ahead) / 60:.0f} minutes {'ahead of' if ahead > 0 else 'behind'}"
        yield CollectNote(
            place, f"its clock is {told} this machine's, and so are the times in its logs; it needs NTP or chrony"
        )
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK, tarinfo=SmallHeader) as archive:
            for info, opened in _plain_files(archive, odd):
                if info.name in apart:
                    apart[info.name](opened.read(MAX_ANSWER))
                    continue
                info.mtime = int(info.mtime - ahead)
                name = str(PurePosixPath("/", info.name))
                done = folder.keep(Original(place, label, name, info.size, float(info.mtime)), opened)
                yield from noted(done, place, clean(name))
                if done.cut if isinstance(done, Copied) else done and folder.meter.is_spent:
                    break  # out of space, or nothing more comes: do not wait for the rest
    except tarfile.ReadError as error:
        if "empty file" not in str(error):  # the script found nothing, or its exit code says why
            yield CollectNote(place, clean(f"stopped sending: {error}"))
    except _BROKEN as error:
        yield CollectNote(place, clean(f"stopped sending: {error}"))
    if odd.total():
        yield CollectNote(place, f"{odd.total()} links, devices or pipes were sent and not kept")


def skip_greeting(stream: BinaryIO) -> float:
    """Reads up to where the script begins to answer. Returns by how many seconds the clock there is ahead of ours; 0 if that
    is within what a busy machine may take to answer.
    """
    left = _MAX_GREETING
    while left > 0 and (line := stream.readline(left)):
        left -= len(line)
        begin, _, told = line.rstrip().partition(b" ")
        if begin == BEGIN.encode():
            ahead = float(told) - time.time() if re.fullmatch(rb"\d{1,12}", told) else 0.0
            return ahead if abs(ahead) > _CLOCKS_DIFFER_S else 0.0
    return 0.0


def _plain_files(archive: tarfile.TarFile, odd: Counter[str]) -> Iterator[tuple[tarfile.TarInfo, BinaryIO]]:
    """`odd` counts what else is there."""
    for info in archive:
        archive.members = []  # pyrefly: ignore[missing-attribute] - it would keep every header
        opened = archive.extractfile(info) if info.isreg() else None
        if opened is None:
            odd["others"] += not info.isdir()
        else:
            yield info, cast("BinaryIO", opened)


def _receive_log(
    target: RemoteMachine, argv: tuple[str, ...], place: str, folder: EvidenceFolder
) -> list[Copied | CollectNote]:
    with running(argv, b"", folder.meter.seconds_left) as tool:
        done = None
        if tool.failed is None:
            done = folder.keep(Original(place, target.label, f"/{target.label}.log", None, None), tool.answer)
    return [*noted(done, place), *([CollectNote(place, tool.failed.why)] if tool.failed else [])]


# ---------------------------------------------------------------------------------------------------------------------
# `s3://`, `gs://`, `hf://`, `memory://`: whatever fsspec has a driver for.

_URL_LABEL = "url"
_URL_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


def copy_url(place: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """All evidence below the address. Raises UsageError if fsspec or its driver is not installed."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - for such places alone
    except ModuleNotFoundError as error:
        raise UsageError(f"{shown(place)}: needs fsspec: pip install 'forkpoint[collect]'") from error
    try:
        system, root = url_to_fs(place)
        found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    except ImportError as error:
        raise UsageError(f"{place}: {error}") from error
    except Exception as error:  # noqa: BLE001 - every driver has its own exceptions, and the other places go on
        return [CollectNote(shown(place), f"cannot be listed ({tell_driver_error(error)})")]
    if not found:
        return [CollectNote(place, "nothing there")]
    got: list[Copied | CollectNote] = []
    for name, facts in sorted(found.items(), key=lambda item: (item[1].get("size") or 0, item[0])):
        original = Original(place, _URL_LABEL, name, _number(facts.get("size")), _time(facts))
        try:
            with system.open(name, "rb") as stream:
                done = folder.keep(original, cast("BinaryIO", stream))
        except Exception as error:  # noqa: BLE001 - as above
            done = f"cannot be read ({tell_driver_error(error)})"
        got += noted(done, place, name)
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
