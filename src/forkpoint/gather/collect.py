"""`forkpoint collect`: asks live ranks, visits all places in parallel, and notes what is wrong with the files."""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from forkpoint.errors import InputError
from forkpoint.evidence import read
from forkpoint.evidence.files import is_url
from forkpoint.gather.attach.asking import LocalRanks, find_pipes
from forkpoint.gather.attach.jobs import LiveJob, find_jobs
from forkpoint.gather.folder import (
    MANIFEST_NAME,
    CollectLimits,
    CollectNote,
    Copied,
    EvidenceFolder,
    FileKind,
    Manifest,
    Meter,
    Original,
    noted,
)
from forkpoint.gather.remote import Remote, copy_remote, copy_url, parse_remote
from forkpoint.gather.this_machine import (
    HERE,
    copy_kernel_log,
    copy_local,
    find_named,
    has_grown,
    usual_paths,
)
from forkpoint.gather.tools import CallFailed
from forkpoint.live.watch.sources import Gathered, LiveSource, Spool
from forkpoint.live.watch.sources.pipes import Pipes
from forkpoint.model.capture import Capture
from forkpoint.model.trace import RankTrace
from forkpoint.report.escape import json_text
from forkpoint.traces.dump import decode

# ---------------------------------------------------------------------------------------------------------------------
# Asks live ranks for dumps and stacks (debug server, guard, pipes), and RAS.
#
# None of it stops, signals or changes a rank. A dump counts when it is complete; a rank that takes longer is noted.

_ASKED_LABEL = "asked"
_LATE = "no dump yet"
"""What a source notes about a rank that was asked and has not written yet."""
_NEVER_AGAIN_S = 1e9


@dataclass(frozen=True, slots=True)
class RankQuestion:
    source: LiveSource
    patience_s: float
    """For ranks that were asked and have not answered yet. Only pipes are waited for."""
    label: str = _ASKED_LABEL
    """The folder for the answers."""


def questions_to(jobs: Sequence[LiveJob], patience_s: float) -> list[RankQuestion]:
    """Like `forkpoint attach`: debug server or guard of each rank, then the pipes of those that have one. Jobs are kept
    apart: each has a rank 0.
    """
    found: list[RankQuestion] = []
    for number, job in enumerate(jobs):
        label = _ASKED_LABEL if len(jobs) == 1 else f"{_ASKED_LABEL}-{number + 1}"
        found += [RankQuestion(LocalRanks(job.ranks), 0.0, label)] if job.ranks else []
        found += [RankQuestion(pipes, patience_s, label) for pipes in find_pipes(job.ranks)]
    return found


def ask_pipes(stem: str, prefixes: Sequence[str], patience_s: float) -> RankQuestion:
    return RankQuestion(Pipes(stem, prefixes, _NEVER_AGAIN_S), patience_s)


def ask_ranks(questions: Sequence[RankQuestion], folder: EvidenceFolder) -> list[Copied | CollectNote]:
    got: list[Copied | CollectNote] = []
    with TemporaryDirectory(prefix="forkpoint-collect-") as temporary:
        for number, question in enumerate(questions):
            spool = Spool(str(Path(temporary, str(number))))
            gathered, notes = _patiently(question, spool, folder.meter.seconds_left)
            files = (*(dump.path for dump in gathered.dumps), *gathered.stacks, *gathered.texts)
            for path in dict.fromkeys(files):
                got += _keep_answer(path, question, folder)
            got += [CollectNote(question.source.name, note) for note in notes]
    return got


def _patiently(question: RankQuestion, spool: Spool, left_s: float) -> tuple[Gathered, tuple[str, ...]]:
    """Asks once. Later calls only check which ranks have written."""
    deadline = time.monotonic() + min(question.patience_s, left_s)
    gathered = question.source.gather(spool, stacks=True)
    refused = tuple(note for note in gathered.notes if _LATE not in note)
    while any(_LATE in note for note in gathered.notes) and time.monotonic() < deadline:
        gathered = question.source.gather(spool, stacks=True)
    return gathered, (*refused, *(note for note in gathered.notes if _LATE in note))


def _keep_answer(path: str, question: RankQuestion, folder: EvidenceFolder) -> list[Copied | CollectNote]:
    source = question.source.name
    with Path(path).open("rb") as stream:
        done = folder.keep(Original(source, question.label, f"/{Path(path).name}", None, time.time()), stream)
    return noted(done, source)


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong with gathered files: truncated, from another run, still being written.

_SLACK_S = 120.0
"""Possible difference between the clocks of a file server and a rank."""


def judged(files: Sequence[Copied], root: Path, local: frozenset[str]) -> tuple[Copied, ...]:
    """`local`: places whose originals can be checked again."""
    grown = [replace(file, growing=has_grown(file)) if file.place in local else file for file in files]
    dumps = [file for file in grown if file.kind is FileKind.DUMP]
    capture = _read_dumps(dumps, root)
    if capture is None:
        return tuple(_with_damage(file, root) if file.kind is FileKind.DUMP else file for file in grown)
    begin, used = _begin(capture), {trace.file: trace for trace in capture.traces}
    said = {one.file: one.why for one in capture.set_aside}
    return tuple(
        _with_capture(file, root, used, said) if file.kind is FileKind.DUMP else _with_age(file, begin)
        for file in grown
    )


def _read_dumps(dumps: Sequence[Copied], root: Path) -> Capture | None:
    try:
        return read([str(root / file.file) for file in dumps]) if dumps else None
    except InputError:
        return None


def _with_capture(file: Copied, root: Path, used: Mapping[str, RankTrace], said: Mapping[str, str]) -> Copied:
    """A readable dump that is not in the capture is from another run, or an older one of the same rank."""
    path = str(root / file.file)
    if path in used:
        return replace(file, truncated=used[path].cut)
    file = _with_damage(file, root)
    return file if file.truncated else replace(file, stale=said.get(path))


def _with_damage(file: Copied, root: Path) -> Copied:
    try:
        cut = decode((root / file.file).read_bytes(), file.file).header.cut
    except InputError as error:
        cut = str(error).removeprefix(f"{file.file}: ")
    return replace(file, truncated=cut)


def _begin(capture: Capture) -> float | None:
    """When the job made its first call, if all ring buffers still have it."""
    begun = [trace.first_ns for trace in capture.traces if trace.first_ns and trace.from_start]
    return min(begun) / 1e9 if begun and len(begun) == len(capture.traces) else None


def _with_age(file: Copied, begin: float | None) -> Copied:
    if begin is None or file.modified is None or file.modified > begin - _SLACK_S:
        return file
    return replace(file, stale="last written before the first call of this run")


# ---------------------------------------------------------------------------------------------------------------------
# Visits all places in parallel and copies into one folder with a manifest.

_AT_ONCE = 8
_Got = list[Copied | CollectNote]


@dataclass(frozen=True, slots=True)
class Wanted:
    places: tuple[str, ...] = ()
    here: bool = False
    """Also this machine's usual places, the ranks that run on it and its kernel's messages."""
    ask: bool = False
    """Ask the ranks of this machine that have a debug server, a guard or a pipe."""
    questions: tuple[RankQuestion, ...] = ()
    patience_s: float = 30.0
    limits: CollectLimits = field(default_factory=CollectLimits)


def collect(wanted: Wanted, root: str) -> Manifest:
    """Raises UsageError. What a place cannot give becomes a note."""
    remotes = [(place, parse_remote(place)) for place in wanted.places]
    folder = EvidenceFolder(root, Meter(wanted.limits))
    host = socket.gethostname()
    got: _Got = []
    paths = [place for place, remote in remotes if remote is None and not is_url(place)]
    jobs = find_jobs() if wanted.here or wanted.ask else []
    # Ranks first: somebody may be waiting to kill them.
    questions = (*wanted.questions, *(questions_to(jobs, wanted.patience_s) if wanted.ask else ()))
    got += ask_ranks(questions, folder)
    got += [found for path in paths for found in copy_local([path], path, host, folder)]
    if wanted.here:
        got += copy_local(usual_paths([rank for job in jobs for rank in job.ranks]), HERE, host, folder)
        got.append(copy_kernel_log(HERE, host, folder))
    got += _visit([(place, remote) for place, remote in remotes if remote or is_url(place)], folder)
    got += _named(got, host, folder)
    files = judged([file for file in got if isinstance(file, Copied)], folder.root, frozenset({HERE, *paths}))
    notes = tuple(note for note in got if isinstance(note, CollectNote))
    taken_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = Manifest(taken_at, tuple(sorted(files, key=lambda f: f.file)), notes)
    why = _write(manifest, folder.root / MANIFEST_NAME)
    return replace(manifest, notes=(*notes, CollectNote(MANIFEST_NAME, why))) if why else manifest


def _write(manifest: Manifest, path: Path) -> str | None:
    """Why it could not be written, if so: the copies are useful without it."""
    try:
        path.write_text(json_text(manifest) + "\n")
    except OSError as error:
        path.unlink(missing_ok=True)
        return f"cannot be written ({error.strerror}): diagnose reads the copies without it"
    return None


def _visit(places: Sequence[tuple[str, Remote | None]], folder: EvidenceFolder) -> _Got:
    """Machines in parallel: most of the time is waiting."""
    visits: list[Callable[[], _Got]] = []
    got: _Got = []
    for place, remote in places:
        if remote is None:
            visits.append(lambda place=place: copy_url(place, folder))
            continue
        targets = remote.find_targets(folder.meter.seconds_left)
        if isinstance(targets, CallFailed):
            got.append(CollectNote(place, targets.why))
            continue
        got += [CollectNote(place, targets.missing)] if targets.missing else []
        visits += [
            lambda remote=remote, target=target: copy_remote(remote, target, folder) for target in targets.machines
        ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for visit in [pool.submit(visit) for visit in visits]:
            got += visit.result()
    return got


def _named(got: _Got, host: str, folder: EvidenceFolder) -> _Got:
    """Dumps on this machine's disks that the logs name and that were not copied yet."""
    copied = [file for file in got if isinstance(file, Copied)]
    logs = [folder.root / file.file for file in copied if file.kind is FileKind.LOG]
    known = {file.origin for file in copied}
    return copy_local([path for path in find_named(logs) if path not in known], HERE, host, folder)
