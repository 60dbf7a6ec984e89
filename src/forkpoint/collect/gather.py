"""Visits all places in parallel and copies into one folder with a manifest."""

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forkpoint.collect.ask import RankQuestion, ask_ranks, pipes_of
from forkpoint.collect.call import CallFailed
from forkpoint.collect.here import HERE, copy_local
from forkpoint.collect.judged import judged
from forkpoint.collect.keep import EvidenceFolder
from forkpoint.collect.kernel import copy_kernel_log
from forkpoint.collect.kinds import FileKind
from forkpoint.collect.limits import Limits, Meter
from forkpoint.collect.manifest import MANIFEST_NAME, CollectNote, Copied, Manifest
from forkpoint.collect.named import find_named
from forkpoint.collect.places import parse_remote
from forkpoint.collect.processes import find_live_ranks
from forkpoint.collect.receive import copy_remote
from forkpoint.collect.transports import Remote
from forkpoint.collect.transports.url import copy_url
from forkpoint.collect.usual import usual_paths
from forkpoint.ingest.files import is_url
from forkpoint.report.json_text import json_text

_AT_ONCE = 8
_Got = list[Copied | CollectNote]


@dataclass(frozen=True, slots=True)
class Wanted:
    places: tuple[str, ...] = ()
    here: bool = False
    """Also this machine's usual places, the ranks that run on it and its kernel's messages."""
    ask: bool = False
    """Ranks of this machine that have a pipe are asked for a dump."""
    questions: tuple[RankQuestion, ...] = ()
    patience_s: float = 30.0
    limits: Limits = field(default_factory=Limits)


def collect(wanted: Wanted, root: str) -> Manifest:
    """Raises UsageError. What a place cannot give is a note."""
    remotes = [(place, parse_remote(place)) for place in wanted.places]
    folder = EvidenceFolder(root, Meter(wanted.limits))
    host = socket.gethostname()
    got: _Got = []
    paths = [place for place, remote in remotes if remote is None and not is_url(place)]
    ranks = find_live_ranks() if wanted.here or wanted.ask else []
    # First: somebody may wait for this to kill the ranks.
    questions = (*wanted.questions, *(pipes_of(ranks, wanted.patience_s) if wanted.ask else ()))
    got += ask_ranks(questions, folder)
    got += [found for path in paths for found in copy_local([path], path, host, folder)]
    if wanted.here:
        got += copy_local(usual_paths(ranks), HERE, host, folder)
        got.append(copy_kernel_log(HERE, host, folder))
    got += _visit([(place, remote) for place, remote in remotes if remote or is_url(place)], folder)
    got += _named(got, host, folder)
    files = judged([file for file in got if isinstance(file, Copied)], folder.root, frozenset({HERE, *paths}))
    notes = tuple(note for note in got if isinstance(note, CollectNote))
    taken_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = Manifest(taken_at, tuple(sorted(files, key=lambda f: f.file)), notes)
    (folder.root / MANIFEST_NAME).write_text(json_text(manifest) + "\n")
    return manifest


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
        visits += [lambda remote=remote, target=target: copy_remote(remote, target, folder) for target in targets]
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
