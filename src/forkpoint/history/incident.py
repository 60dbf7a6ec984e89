"""What is stored of an incident: the verdict without quotes from evidence, who and where, and what it cost.

Secrets are masked as in `bundle`. Host names stay: the store must answer which node it was.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Final

from forkpoint.model.capture import Capture
from forkpoint.model.frames import bare_name, is_python, short_name, user_frames
from forkpoint.model.incident import Divergence
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Action, Cause, Moment, Source, Verdict
from forkpoint.model.world import ProcessGroup
from forkpoint.redact import mask_secrets
from forkpoint.report.escape import Json, escape, map_texts
from forkpoint.report.json_report import verdict_document
from forkpoint.source.forge import commit_of

# ---------------------------------------------------------------------------------------------------------------------
# Decides which incidents have the same fork: the same cause, functions of user code on both sides, op and kind of group.
#
# Only function names count: lines shift with every commit, files move, and directories differ by user. Numbers of groups and
# ranks say nothing either, so a group is identified by its role. If neither side shows user code, there is no fingerprint:
# the rest would merge unrelated incidents. If all functions have common names (`main`), the file name, the library function
# that is called, and the job's name are added. Two bugs in one function, at the same op and in the same kind of group, have
# the same fingerprint: reports say `same fork`, never `same bug`.

_MAX_FRAMES = 5
"""Innermost. Outer frames depend on how a program is started."""
_VERSION = 1
"""Part of the hash: fingerprints of different versions of this rule must not match."""

_MODULE = "<module>"
_EVERYWHERE = frozenset({_MODULE, "main", "_main", "run", "train", "worker", "launch"})
_WRAPPERS = frozenset({"wrapper", "inner", "_fn", "__call__", "_call_impl", "_wrapped_call_impl", "decorate_context"})

_ROLES = (
    ("default", ("default_pg", "default", "world", "global")),
    ("dp", ("dp", "ddp", "data", "replicate", "data_parallel")),
    ("fsdp", ("fsdp", "shard", "dp_shard", "hsdp", "zero")),
    ("tp", ("tp", "mp", "tensor", "model", "tensor_parallel", "tensor_model_parallel")),
    ("pp", ("pp", "pipe", "pipeline", "stage", "pipeline_parallel")),
    ("cp", ("cp", "sp", "context", "sequence", "context_parallel")),
    ("ep", ("ep", "expert", "expert_parallel", "moe")),
    ("embedding", ("embd", "embedding", "position_embedding")),
)
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    cause: str
    op: str
    role: str
    suspects: tuple[str, ...]
    """Functions of user code on the suspects' side, innermost first."""
    others: tuple[str, ...]

    @property
    def key(self) -> str:
        told = [_VERSION, self.cause, self.op, self.role, self.suspects, self.others]
        return sha256(json.dumps(told).encode()).hexdigest()[:16]

    @property
    def words(self) -> str:
        """`all_reduce (dp) in step < train, while suspects are in save < train`."""
        waits = f" in {' < '.join(self.others)}" if self.others else ""
        left = f"; suspects in {' < '.join(self.suspects)}" if self.suspects and self.suspects != self.others else ""
        return f"{self.op or 'no call'} ({self.role}){waits}{left}"


def find_fingerprint(verdict: Verdict, capture: Capture, job: str | None = None) -> Fingerprint | None:
    """None: no user code is known on either side."""
    fork = verdict.divergence
    suspects = frozenset(verdict.suspects)
    members = frozenset(rank for cohort in fork.cohorts for rank in cohort.ranks) if fork else frozenset[int]()
    sides = [_stack_of(fork, capture, ranks) for ranks in (suspects, members - suspects)]
    left, stayed = (_functions(stack) for stack in sides)
    if not left and not stayed:
        return None
    if all(name in _EVERYWHERE for name in (*left, *stayed)):
        left, stayed = (_with_context(stack, job) for stack in sides)
    role = find_role(fork.group, verdict.coverage.ranks, fork.channel) if fork else "unknown"
    return Fingerprint(verdict.cause, _op(fork, suspects), role, left, stayed)


def _op(fork: Divergence | None, suspects: frozenset[int]) -> str:
    """The op in which the others wait; the suspects' own if nobody else has one."""
    cohorts = (
        sorted(fork.cohorts, key=lambda c: (not suspects.isdisjoint(c.ranks), -len(c.ranks), c.ranks)) if fork else []
    )
    return next((cohort.op for cohort in cohorts if cohort.op), "")


def _stack_of(fork: Divergence | None, capture: Capture, ranks: frozenset[int]) -> Stack:
    """The recorded stack of the call at the fork; else a stack taken while it hung; else a traceback in a log. For ranks that
    did not reach the fork the recorder only has an earlier call, which comes last.
    """
    cohorts = sorted(fork.cohorts if fork else (), key=lambda c: (-len(c.ranks), c.ranks))
    of_ranks = [c for c in cohorts if c.stack and not ranks.isdisjoint(c.ranks)]
    recorded = (c.stack for c in of_ranks if c.stack and c.op)
    before = (c.stack for c in of_ranks if c.stack and not c.op)
    live = (s.stack for s in sorted(capture.stacks, key=lambda s: s.rank) if s.rank in ranks)
    said = (e.stack for e in sorted(capture.events, key=lambda e: (e.file, e.line)) if e.rank in ranks)
    return next((stack for stack in chain(recorded, live, said, before) if _functions(stack)), ())


def _functions(stack: Stack) -> tuple[str, ...]:
    """Recursive calls count once: their depth differs from run to run. `<module>` counts only if there is nothing else."""
    names = [bare_name(frame) for frame in _python(stack)]
    once = [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]
    return tuple([name for name in once if name != _MODULE][:_MAX_FRAMES] or once)


def _with_context(stack: Stack, job: str | None) -> tuple[str, ...]:
    frames = _python(stack)
    if not frames:
        return ()
    within = stack[: stack.index(frames[0])]
    called = [bare_name(frame) for frame in reversed(within) if bare_name(frame) not in _WRAPPERS]
    calls = f" calling {called[0]}" if called else ""
    of_job = f" (job {job})" if job else ""
    return (f"{bare_name(frames[0])} of {short_name(frames[0].filename)}{calls}{of_job}",)


def _python(stack: Stack) -> list[Frame]:
    return [frame for frame in user_frames(stack) if is_python(frame)]


def find_role(group: ProcessGroup, world: int, channel: tuple[int, int] | None = None) -> str:
    """From the group's description, else from its shape."""
    told = _role_in(group.desc)
    if told:
        return told
    if len(group.ranks) == world or group.name == "0":
        return "default"
    if channel is not None or len(group.ranks) == 2:
        return "pair"
    steps = {after - before for before, after in zip(group.ranks, group.ranks[1:], strict=False)}
    return "neighbours" if steps == {1} else "strided" if len(steps) == 1 else "subgroup"


def _role_in(desc: str) -> str | None:
    """`mesh_dp`, `tp_1`, `DATA_PARALLEL_GROUP`; any other description is used as it is, without its numbers."""
    words = [word for word in _WORDS.findall(desc.lower()) if word not in ("mesh", "group", "pg", "parallel")]
    if words in ([], ["undefined"]):
        return None
    text = "_".join(words)
    exact = next((role for role, names in _ROLES if text in names), None)
    return exact or next((role for role, names in _ROLES if any(word in names for word in words)), text)


_MAX_ASKED: Final = 64
"""Ranks whose dumps are searched for the time of the fork: one is enough, and there may be 100,000."""
_TEXTS: Final = frozenset({"says", "patch", "why", "condition"})
"""Fields that quote logs or source."""
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the evidence does not say about the job."""

    job: str | None = None
    user: str | None = None
    commit: str | None = None
    run: str | None = None
    """Shared by its attempts: the scheduler's job id, or the name of `forkpoint run`."""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class HostPart:
    """A host that took part."""

    host: str
    is_suspect: bool
    gpus: tuple[int, ...] = ()
    """The suspects' GPUs."""


@dataclass(frozen=True, slots=True)
class KeptIncident:
    id: str
    """Derived from the content: writing an incident twice stores it once."""
    at: int
    """Seconds since 1970: the last dated moment, else when it was stored."""
    cause: str
    action: str
    symptom: str | None
    confidence: float
    headline: str
    fingerprint: str | None
    fork: str
    """The fingerprint in words."""
    job: JobFacts
    world: int
    suspects: tuple[int, ...]
    gpu_hours: float | None
    """World size x time from the fork to the last dated moment."""
    hosts: tuple[HostPart, ...]
    ranks_placed: int
    """Ranks whose host is known."""
    document: str = field(repr=False)
    """The verdict, schema forkpoint.verdict/1."""

    @property
    def concerns_hardware(self) -> bool:
        """Code alone does not explain it, so it counts for the odds of nodes."""
        return self.action not in (Action.FIX_CODE, Action.NONE)


def describe_incident(
    verdict: Verdict,
    capture: Capture,
    job: JobFacts,
    nodes: Mapping[int, str] | None = None,
    *,
    with_evidence: bool = False,
) -> KeptIncident | None:
    """None: nothing is wrong. `nodes`: hosts of ranks known from elsewhere than logs. `with_evidence`: also quotes of logs
    and patches.
    """
    if verdict.cause is Cause.HEALTHY:
        return None
    hosts, placed = _hosts(verdict, capture, nodes or {})
    found = find_fingerprint(verdict, capture, job.job)
    document = verdict_document(verdict)
    return KeptIncident(
        id=_identity(verdict, capture, job),
        at=max((_seconds(moment) for moment in _dated(verdict)), default=int(time.time())),
        cause=verdict.cause,
        action=verdict.action,
        symptom=verdict.symptom,
        confidence=verdict.confidence,
        headline=_stored(verdict.headline),
        fingerprint=found.key if found else None,
        fork=_stored(found.words) if found else "",
        job=JobFacts(
            _stored_if_any(job.job),
            _stored_if_any(job.user),
            _stored_if_any(job.commit),
            _stored_if_any(job.run),
            job.attempt,
        ),
        world=verdict.coverage.ranks,
        suspects=verdict.suspects,
        gpu_hours=_gpu_hours(verdict),
        hosts=hosts,
        ranks_placed=placed,
        document=json.dumps(map_texts(document if with_evidence else _bare(document), mask_secrets)),
    )


def _stored(text: str) -> str:
    """Without NULs and lone surrogates, which names in evidence may have and databases refuse."""
    return escape(mask_secrets(text))


def _stored_if_any(text: str | None) -> str | None:
    return _stored(text) if text else None


def job_of(environ: Mapping[str, str], source: str, run: str | None = None, attempt: int = 0) -> JobFacts:
    """What environment variables and the repository in `source` say about the job."""
    return JobFacts(
        job=environ.get("FORKPOINT_JOB") or environ.get("SLURM_JOB_NAME") or None,
        user=environ.get("SLURM_JOB_USER") or environ.get("USER") or None,
        commit=environ.get("FORKPOINT_COMMIT") or commit_of(source),
        run=run or environ.get("SLURM_JOB_ID") or environ.get("TORCHELASTIC_RUN_ID") or None,
        attempt=attempt,
    )


def _dated(verdict: Verdict) -> list[Moment]:
    return [moment for moment in verdict.moments if moment.utc]


def _seconds(moment: Moment) -> int:
    return int(datetime.strptime(moment.utc or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())


def _gpu_hours(verdict: Verdict) -> float | None:
    """None if the fork, or anything after it, has no time."""
    dated = _dated(verdict)
    forked = [_seconds(m) for m in dated if m.source is Source.RECORDER and m.kind == "issued"]
    ended = [_seconds(m) for m in dated if m.kind not in ("issued", "last issued", "completed")]
    if not forked or not ended or max(ended) < min(forked):
        return None
    return round((max(ended) - min(forked)) * verdict.coverage.ranks / _HOUR_S, 4)


def _identity(verdict: Verdict, capture: Capture, job: JobFacts) -> str:
    """The same when the incident is diagnosed again."""
    fork = verdict.divergence
    slot = [fork.group.desc, list(fork.group.ranks[:2]), len(fork.group.ranks), fork.seq, fork.channel] if fork else []
    issued = _issued_ns(fork, capture) if fork else None
    if issued is not None:  # no two jobs issue this call in the same nanosecond
        told: list[object] = [verdict.coverage.ranks, slot, issued]
    else:
        dated = min((moment.utc or "" for moment in _dated(verdict)), default="")
        told = [
            verdict.coverage.ranks,
            slot,
            job.run,
            job.attempt,
            dated,
            verdict.cause,
            verdict.suspects,
            verdict.headline,
        ]
    return sha256(json.dumps(told).encode("utf-8", "backslashreplace")).hexdigest()[:24]


def _issued_ns(fork: Divergence, capture: Capture) -> int | None:
    """When the first of the lowest ranks issued the call at the fork."""
    seq = fork.first_visible_seq
    if seq is None or fork.channel is not None:
        return None
    asked = frozenset(sorted(fork.group.ranks)[:_MAX_ASKED])
    tracks = [
        group.collectives
        for trace in capture.traces
        if trace.rank in asked
        for group in trace.groups
        if (group.name, group.desc) == (fork.group.name, fork.group.desc)
    ]
    return min((issued for track in tracks if track and (issued := track.created(seq))), default=None)


def _hosts(verdict: Verdict, capture: Capture, nodes: Mapping[int, str]) -> tuple[tuple[HostPart, ...], int]:
    """Every host known to have taken part, and how many ranks have a known host. A rank with two hosts counts as unknown."""
    told: dict[int, set[str]] = {}
    for rank, host in _told_hosts(capture):
        told.setdefault(rank, set()).add(host)
    where = {rank: next(iter(hosts)) for rank, hosts in told.items() if len(hosts) == 1} | dict(nodes)
    gpus = {place.rank: place.gpu for place in capture.places if place.gpu is not None}
    suspects = [rank for rank in verdict.suspects if rank in where]
    parts = (
        HostPart(
            _stored(host),
            is_suspect=any(where[rank] == host for rank in suspects),
            gpus=tuple(sorted({gpus[rank] for rank in suspects if where[rank] == host and rank in gpus})),
        )
        for host in sorted(set(where.values()))
    )
    return tuple(parts), len(where)


def _told_hosts(capture: Capture) -> list[tuple[int, str]]:
    if capture.places:
        return [(place.rank, place.host) for place in capture.places]
    return [(e.rank, e.speaker.host) for e in capture.events if e.rank is not None and e.speaker.host]


def _bare(value: Json) -> Json:
    """Without texts that quote logs or source. As the schema allows it, they become empty."""
    if isinstance(value, (list, tuple)):
        return [_bare(item) for item in value]
    if isinstance(value, dict):
        return {n: "" if n in _TEXTS and isinstance(item, str) else _bare(item) for n, item in value.items()}
    return value
