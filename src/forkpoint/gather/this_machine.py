"""Evidence on this machine: named paths, usual places, running ranks, dumps that logs name, and the kernel log."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from forkpoint.errors import UsageError
from forkpoint.evidence.files import SNIFF, find_files
from forkpoint.gather.attach.jobs import LiveRank
from forkpoint.gather.folder import CollectNote, Copied, EvidenceFolder, Original, noted
from forkpoint.gather.tools import CallFailed, answer_of
from forkpoint.live.watch.sources.pipes import told_prefixes, usual_prefixes
from forkpoint.traces.dump import MAX_BYTES, looks_like_dump

# ---------------------------------------------------------------------------------------------------------------------
# Default places of evidence: from the environment, each torch release's defaults, and the launcher.

_ATTEMPT = re.compile(r"(.{1,4000})/attempt_\d{1,6}/\d{1,7}/[^/]{1,255}\Z")
_RANK_IN_FILE = re.compile(r"\d{1,7}(?:\.\w{1,10})?\Z")


def usual_paths(ranks: Iterable[LiveRank], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Files and folders that exist."""
    found: list[str] = []
    for prefix in usual_prefixes(environ):
        found += dumps_of(prefix)
    found += _of_environment(environ, os.getcwd())  # noqa: PTH109 - a text like the others
    for rank in ranks:
        found += [path for prefix in told_prefixes(rank.environ) for path in dumps_of(str(Path(rank.folder, prefix)))]
        found += _of_environment(rank.environ, rank.folder)
        found += rank.outputs
    return list(dict.fromkeys(found))


def dumps_of(prefix: str) -> list[str]:
    """The dumps that ranks wrote with this prefix, to which the rank is appended."""
    folder, start = os.path.split(prefix)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in entries if entry.name.startswith(start)]
    except OSError:
        return []
    return sorted(str(Path(folder, name)) for name in names if _RANK_IN_FILE.fullmatch(name[len(start) :]))


def _of_environment(environ: Mapping[str, str], folder: str) -> list[str]:
    """The guard's folder and what a launcher writes."""
    places: list[Path] = []
    if environ.get("FORKPOINT"):
        places.append(Path(folder, environ.get("FORKPOINT_DIR") or "forkpoint-guard"))
    elif environ.get("FORKPOINT_DIR"):
        places.append(Path(folder, environ["FORKPOINT_DIR"]))
    return [*(str(place) for place in places if place.exists()), *launcher_logs(environ, folder)]


def launcher_logs(environ: Mapping[str, str], folder: str) -> list[str]:
    """Torchrun's --log-dir, by the error file that it gives its ranks, and Slurm's default output."""
    places: list[Path] = []
    if attempt := _ATTEMPT.match(environ.get("TORCHELASTIC_ERROR_FILE", "")):
        places.append(Path(attempt[1]))
    job = environ.get("SLURM_JOB_ID", "")
    if job.isascii() and job.isdecimal():
        places += [Path(environ.get("SLURM_SUBMIT_DIR") or folder, f"slurm-{job}.{end}") for end in ("out", "err")]
    return [str(place) for place in places if place.exists()]


# ---------------------------------------------------------------------------------------------------------------------
# Files and folders on this machine, or on a shared disk.

HERE = "here"


def copy_local(paths: Sequence[str], place: str, host: str, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    """All evidence behind the paths. Small files first: dumps are small, and one huge log must not crowd them out."""
    got: list[Copied | CollectNote] = []
    files: list[str] = []
    for path in paths:
        try:
            files += find_files([path])
        except UsageError as error:
            got.append(CollectNote(place, str(error)))
    own = str(folder.root) + os.sep
    fresh = [path for path in dict.fromkeys(files) if not str(Path(path).resolve()).startswith(own)]
    for path in sorted(fresh, key=lambda path: (_size(path) > MAX_BYTES, path)):
        got += noted(_copy(path, place, host, folder), place, path)
    return got


def has_grown(copied: Copied) -> bool:
    """Whether a file of this machine has changed since it was copied."""
    try:
        now = os.stat(copied.origin)  # noqa: PTH116 - of every file again
    except OSError:
        return False
    return now.st_mtime != copied.modified or (copied.cut is None and now.st_size != copied.size)


def _copy(path: str, place: str, host: str, folder: EvidenceFolder) -> Copied | str | None:
    try:
        with Path(path).open("rb") as stream:
            status = os.fstat(stream.fileno())
            original = Original(place, host, str(Path(path).absolute()), status.st_size, status.st_mtime)
            return folder.keep(original, stream, _skip_to_end(stream, status.st_size, folder.meter.bytes_left))
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _skip_to_end(stream: BinaryIO, size: int, room: int) -> str | None:
    """Skips the beginning of a log that does not fit: the end is worth more. Returns what is missing."""
    if size <= max(room, MAX_BYTES):
        return None
    stream.seek(size - room)
    stream.readline()
    return f"its first {stream.tell()} of {size} bytes were left out (--max-mib)"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - of every file
    except OSError:
        return 0


# ---------------------------------------------------------------------------------------------------------------------
# Dumps that logs name. A log may contain anything: a path from it is followed only if the file is a dump.

_WRITTEN = re.compile(rb"(?:Flight Recorder|NCCLPG) debug info to (/[^\s\0]{1,1000})")
_VARIABLE = re.compile(rb"TORCH_(?:FR_DUMP|NCCL_DEBUG_INFO)_TEMP_FILE(?:=|: ?)(/[^\s\0,;\"']{1,1000})")
_RANK = re.compile(r"\d{1,7}\Z")
_PIECE = 8 << 20
_OVERLAP = 2048
_AT_MOST = 10_000


def find_named(logs: Iterable[Path]) -> list[str]:
    """Only files whose content is a dump."""
    named = {path for log in logs for path in _named_in(log)}
    beside = {found for prefix in {_RANK.sub("", path) for path in named} for found in dumps_of(prefix)}
    return sorted(path for path in list(beside | named)[:_AT_MOST] if _is_dump(path))


def _named_in(log: Path) -> Iterator[str]:
    rest = b""
    with log.open("rb") as stream:
        while data := stream.read(_PIECE):
            text = rest + data
            for pattern in (_WRITTEN, _VARIABLE):
                yield from (found.decode("utf-8", "replace") for found in pattern.findall(text))
            rest = text[-_OVERLAP:]


def _is_dump(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as stream:
            return looks_like_dump(stream.read(SNIFF))
    except OSError:
        return False


# ---------------------------------------------------------------------------------------------------------------------
# This machine's kernel log: Xids, out of memory, lost network. Read if this user may.

_LIMIT_S = 5.0
_TOOLS = (
    ("dmesg", "--time-format=iso"),
    ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=short-iso"),
)


def copy_kernel_log(
    place: str, host: str, folder: EvidenceFolder, since: datetime | None = None
) -> Copied | CollectNote:
    """`since`: only later messages; None: all since boot."""
    why: list[str] = []
    later = [f"--since={since:%Y-%m-%d %H:%M:%S}"] if since else []
    for argv in _TOOLS:
        said = answer_of((*argv, *later), _LIMIT_S)
        if isinstance(said, CallFailed):
            why.append(said.why)
        elif said.strip():
            done = folder.keep(Original(place, host, f"/{argv[0]}.txt", None, None), BytesIO(said.encode()))
            return done if isinstance(done, Copied) else CollectNote(place, done or f"{argv[0]}: no kernel messages")
    return CollectNote(place, f"no kernel messages: {'; '.join(why) or 'there are none'}")
