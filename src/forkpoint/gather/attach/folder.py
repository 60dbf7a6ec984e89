"""Writes what was seen of a job to a folder that the ordinary pipeline reads: dumps, stacks, logs, the kernel log, `ranks.json`, and
`attach.json`, which says how each rank was asked. Other machines do the same, and what they send comes into the same folder.
"""

import io
import re
import socket
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import structs

from forkpoint.doctor.nvml import Gpu
from forkpoint.errors import UsageError
from forkpoint.evidence.files import find_files
from forkpoint.gather.attach.jobs import LiveJob, LiveRank
from forkpoint.gather.attach.look import Seen
from forkpoint.gather.attach.stacks import WORDS, ProcessSample
from forkpoint.gather.engines import AT_ONCE, Commands
from forkpoint.gather.folder import CollectNote, Copied, EvidenceFolder, Original, noted
from forkpoint.gather.remote import SAY_BEGIN, unpack
from forkpoint.gather.this_machine import copy_kernel_log, copy_local, launcher_logs
from forkpoint.gather.tools import running
from forkpoint.live.processes import started_at
from forkpoint.live.watch.rule import is_final
from forkpoint.live.watch.sources.pipes import told_prefixes
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from forkpoint.model.world import KnownRank, ProcessGroup, name_ranks, render_ranks
from forkpoint.report.escape import json_text

ATTACH_NAME = "attach.json"
RANKS_NAME = "ranks.json"
_BEFORE_S = 60.0
"""The kernel may have logged the reason before the rank started."""


class AskedRank(msgspec.Struct, frozen=True):
    """One rank, and what was obtained from it."""

    rank: int
    host: str
    pid: int
    """0: not known."""
    recorder: str
    """`debug server`, `guard` or `pipe`; empty if its recorder could not be read."""
    stacks: str
    """`py-spy`, `debug server` or `guard`; empty if nothing could take them."""
    missing: tuple[str, ...]
    process: ProcessSample
    visible: bool
    """Its recorder or its stacks show whether it moves."""
    moved: bool
    waiting: bool
    """It was in a communication call, or had one pending, in every look."""
    gpu: int | None = None
    gpu_busy: int | None = None


class Attached(msgspec.Struct, frozen=True, tag_field="schema", tag="forkpoint.attach/1"):
    """What was seen of a job on one machine, or on several."""

    job: str
    world_size: int
    """0: not known."""
    ranks: tuple[AskedRank, ...]
    lost: tuple[int, ...]
    """Ranks whose process is gone."""
    still_s: float
    """For how long no visible rank has moved, if none did."""
    notes: tuple[str, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()

    @property
    def moved(self) -> tuple[int, ...]:
        return tuple(rank.rank for rank in self.ranks if rank.moved)

    @property
    def hosts(self) -> int:
        return len({rank.host for rank in self.ranks})

    @property
    def unseen(self) -> tuple[int, ...]:
        """Ranks of the job about which nothing is known."""
        return tuple(sorted(set(range(self.world_size)) - {rank.rank for rank in self.ranks} - set(self.lost)))


def describe_seen(job: LiveJob, seen: Seen, gpus: tuple[Gpu, ...] | str) -> Attached:
    host = socket.gethostname()
    by_pid = {pid: gpu for gpu in gpus for pid in gpu.pids} if not isinstance(gpus, str) else {}
    ranks = tuple(_asked(rank, host, seen, by_pid.get(rank.pid)) for rank in job.ranks)
    notes = [f"GPU {gpu.index}: {gpu.lost}" for gpu in gpus if gpu.lost] if not isinstance(gpus, str) else []
    still_s = round(seen.still_s, 1)
    return Attached(job.title, job.world_size, ranks, job.lost, still_s, (*job.notes, *notes), seen.groups)


def _asked(rank: LiveRank, host: str, seen: Seen, gpu: Gpu | None) -> AskedRank:
    found = seen.last.ranks[rank.rank]
    return AskedRank(
        rank=rank.rank,
        host=host,
        pid=rank.pid,
        recorder=found.answer.way,
        stacks=found.stacks_by,
        missing=found.missing,
        process=found.process,
        visible=rank.rank in seen.visible,
        moved=rank.rank in seen.moved,
        waiting=rank.rank in seen.waiting,
        gpu=gpu.index if gpu else None,
        gpu_busy=gpu.busy if gpu else None,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The files.


def keep_seen(job: LiveJob, seen: Seen, folder: EvidenceFolder) -> list[CollectNote]:
    """Copies what ranks answered, and the logs of this run. Returns what could not be copied."""
    host = socket.gethostname()
    got: list[Copied | CollectNote] = []
    for path in seen.last.files:
        with Path(path).open("rb") as stream:
            done = folder.keep(Original("asked", host, f"/{Path(path).name}", None, time.time()), stream)
        got += noted(done, path)
    begun = min((at for rank in job.ranks if rank.pid and (at := started_at(rank.pid))), default=time.time())
    asked = {rank for rank, found in seen.last.ranks.items() if found.answer.dump}
    got += copy_local(_fresh_files(job.ranks, asked, begun), host, host, folder)
    got.append(copy_kernel_log(host, host, folder, datetime.fromtimestamp(begun - _BEFORE_S)))  # noqa: DTZ006 - dmesg takes local time
    return [note for note in got if isinstance(note, CollectNote)]


def _fresh_files(ranks: Sequence[LiveRank], asked: set[int], begun: float) -> list[str]:
    """Logs, and dumps that ranks wrote themselves if they could not be asked; nothing from before this run."""
    paths = [path for rank in ranks for path in (*rank.outputs, *launcher_logs(rank.environ, rank.folder))]
    unasked = [rank for rank in ranks if rank.rank not in asked]
    dumps = [Path(r.folder, f"{prefix}{r.rank}") for r in unasked for prefix in told_prefixes(r.environ)]
    paths += [str(path) for path in dumps if path.is_file()]
    try:
        files = find_files(list(dict.fromkeys(paths)))
    except UsageError:  # one was removed meanwhile
        files = [path for path in dict.fromkeys(paths) if Path(path).is_file()]
    return [file for file in files if _was_written(file, begun)]


def _was_written(path: str, begun: float) -> bool:
    """Empty logs are skipped: they say nothing."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return found.st_mtime >= begun and found.st_size > 0


def write_states(attached: Attached, root: Path) -> None:
    """Writes `ranks.json` and `attach.json`. The job counts as stalled only if every rank of it was seen."""
    seen = not attached.unseen and all(rank.visible or rank.process.state == "T" for rank in attached.ranks)
    stalled = seen and not attached.moved and any(rank.waiting for rank in attached.ranks)
    told = render_ranks(
        attached.world_size or None,
        attached.still_s,
        stalled=stalled,
        ranks=_known(attached),
        groups=attached.groups,
    )
    (root / RANKS_NAME).write_text(told)
    (root / ATTACH_NAME).write_text(json_text(attached) + "\n")


def _known(attached: Attached) -> Iterable[KnownRank]:
    for rank in attached.ranks:
        if not rank.process.is_alive:
            yield KnownRank(rank.rank, "gone", f"pid {rank.pid} on {rank.host} ended during the look")
        elif rank.process.state == "T":
            yield KnownRank(rank.rank, "stopped", f"pid {rank.pid} on {rank.host} is {WORDS['T']}")
    yield from (KnownRank(rank, "gone", "its launcher runs, and no process has its rank") for rank in attached.lost)


def merge(parts: Sequence[Attached], unanswered: Iterable[str]) -> Attached:
    """Merges several machines, with notes on those that did not answer. A job moves if it moves on one of them."""
    first = parts[0]
    return Attached(
        job=first.job,
        world_size=max(part.world_size for part in parts),
        ranks=tuple(sorted((rank for part in parts for rank in part.ranks), key=lambda rank: rank.rank)),
        lost=tuple(sorted({rank for part in parts for rank in part.lost})),
        still_s=min(part.still_s for part in parts),
        notes=(*(note for part in parts for note in part.notes), *unanswered),
        groups=tuple(dict.fromkeys(group for part in parts for group in part.groups)),
    )


# ---------------------------------------------------------------------------------------------------------------------
# The verdict on a live job: which ranks could not be asked, and no accusation while ranks still move.


def with_attached(verdict: Verdict, attached: Attached) -> Verdict:
    """Ranks of a running job are asked at different moments, so one that looks late may not be. Then only what time cannot
    undo is reported, as `watch` does.
    """
    moves = bool(attached.moved) and not (verdict.divergence is not None and is_final(verdict.divergence))
    silent = (
        verdict.cause is Cause.INCONCLUSIVE and not verdict.hypotheses and not any(r.visible for r in attached.ranks)
    )
    found = (
        _moving(verdict, attached)
        if moves
        else _unanswered(verdict, attached)
        if silent
        else _with_pids(verdict, attached)
    )
    return replace(found, coverage=replace(found.coverage, notes=(*found.coverage.notes, *_notes(attached))))


def _moving(verdict: Verdict, attached: Attached) -> Verdict:
    told = f"The job moves: {name_ranks(attached.moved)} went on during the look; nothing hangs."
    return replace(
        verdict,
        symptom=Symptom.NONE,
        cause=Cause.HEALTHY,
        confidence=0.0,
        action=Action.NONE,
        suspects=(),
        summary=told,
        headline=told,
        divergence=None,
        sites=(),
        findings=(),
        hypotheses=(),
        moments=(),
        next=("forkpoint attach, again, when it no longer moves", "forkpoint watch, which waits for that"),
    )


def _unanswered(verdict: Verdict, attached: Attached) -> Verdict:
    told = f"None of the {len(attached.ranks)} ranks could be asked, and their logs show no failure."
    again = "let py-spy read the ranks (sudo, or CAP_SYS_PTRACE in their container), or start them with FORKPOINT=1; then forkpoint attach"
    return replace(verdict, summary=told, headline=told, next=(again,))


_PID = re.compile(r"<pid of rank (\d{1,7})>")


def _with_pids(verdict: Verdict, attached: Attached) -> Verdict:
    """Commands that can be typed as they stand: attach knows the processes."""
    told = {
        rank.rank: f"{rank.pid} on {rank.host}" if attached.hosts > 1 else str(rank.pid)
        for rank in attached.ranks
        if rank.pid
    }

    def fill(text: str) -> str:
        return _PID.sub(lambda found: told.get(int(found[1]), found[0]), text)

    findings = tuple(
        replace(finding, probes=tuple(structs.replace(probe, title=fill(probe.title)) for probe in finding.probes))
        for finding in verdict.findings
    )
    hypotheses = tuple(replace(one, decides=fill(one.decides)) for one in verdict.hypotheses)
    steps = tuple(fill(step) for step in verdict.next)
    return replace(verdict, summary=fill(verdict.summary), findings=findings, hypotheses=hypotheses, next=steps)


def _notes(attached: Attached) -> list[str]:
    notes: dict[str, list[int]] = {}
    for rank in attached.ranks:
        for missing in rank.missing:
            notes.setdefault(missing, []).append(rank.rank)
    told = [f"{name_ranks(ranks)}: {missing}" for missing, ranks in notes.items()]
    told += [
        f"rank {rank.rank}: its main thread waits in the kernel, in {rank.process.kernel}"
        for rank in attached.ranks
        if rank.process.kernel and not rank.stacks and not rank.waiting
    ]
    return [*told, *([f"{name_ranks(attached.unseen)}: not asked"] if attached.unseen else []), *attached.notes]


# ---------------------------------------------------------------------------------------------------------------------
# The same on other machines: each asks its own ranks with the forkpoint installed there, and sends the result.

_SCRIPT = (
    f"{SAY_BEGIN}; "
    "IFS= read -r python; IFS= read -r seconds; IFS= read -r job; IFS= read -r stacks; "
    'set --; test -z "$job" || set -- --job "$job"; test "$stacks" = yes || set -- "$@" --no-stacks; '
    # Whatever nobody waits for any longer must not keep running on the node.
    'limit=; command -v timeout >/dev/null && limit="timeout $seconds"; '
    'exec $limit "$python" -m forkpoint attach --send "$@"'
)


@dataclass(frozen=True, slots=True)
class HostAnswer:
    host: str
    attached: Attached | None
    """None: nothing was received, and the notes say why."""
    notes: tuple[str, ...]


def ask_hosts(
    hosts: Commands, job: str, folder: EvidenceFolder, *, stacks: bool, tell: Callable[[HostAnswer], None]
) -> list[HostAnswer]:
    """Puts what each host sends into the folder, below the host's name."""
    answers: list[HostAnswer] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [pool.submit(_ask, hosts, host, job, folder, stacks=stacks) for host in hosts.argv]
        for done in as_completed(asked):
            answers.append(done.result())
            tell(answers[-1])
    return sorted(answers, key=lambda answer: answer.host)


def _ask(hosts: Commands, host: str, job: str, folder: EvidenceFolder, *, stacks: bool) -> HostAnswer:
    lines = (hosts.python, str(ceil(hosts.node_timeout_s)), job, "yes" if stacks else "no")
    question = "".join(f"{line}\n" for line in lines).encode()
    described: list[bytes] = []
    notes: list[str] = []
    with running(hosts.argv[host](_SCRIPT), question, hosts.node_timeout_s) as tool:
        if tool.failed is None:
            got = unpack(tool.answer, host, host, folder, {ATTACH_NAME: described.append})
            notes += [one.text for one in got if isinstance(one, CollectNote)]
    if tool.failed is not None:
        notes = [hosts.explain(host, tool.failed)]
    attached = _read(described)
    if attached is None and not notes:
        notes = ["did not answer like forkpoint: is another version there?"]
    return HostAnswer(host, attached, tuple(notes))


def _read(described: Sequence[bytes]) -> Attached | None:
    try:
        return msgspec.json.decode(described[0], type=Attached) if described else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def send(root: Path, stream: BinaryIO) -> None:
    """All files of the folder as a tar: what `_ask` unpacks."""
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in _files(root):
            data = path.read_bytes()
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.size, info.mtime = len(data), int(path.stat().st_mtime)
            archive.addfile(info, io.BytesIO(data))


def _files(root: Path) -> Iterable[Path]:
    """`attach.json` first, since the rest may be cut off; not `ranks.json`, which the asking machine writes for the job."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != RANKS_NAME)
    return sorted(found, key=lambda path: (path.name != ATTACH_NAME, path))
