"""What is stored of an incident: the verdict without quotes from evidence, who and where, and what it cost.

Secrets are masked as in `bundle`. Host names stay: the store must answer which node it was.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from forkpoint.history.fingerprint import find_fingerprint
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Divergence
from forkpoint.model.verdict import Action, Cause, Moment, Source, Verdict
from forkpoint.redact import mask_secrets
from forkpoint.report.escape import escape
from forkpoint.report.json_report import Json, verdict_document
from forkpoint.report.masked_json import mask_document
from forkpoint.source.forge import commit_of

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
        document=json.dumps(mask_document(_without_texts(verdict_document(verdict), with_evidence))),
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


# ---------------------------------------------------------------------------------------------------------------------
# When, and what it cost.


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


# ---------------------------------------------------------------------------------------------------------------------
# Identity: the same incident has the same one when it is diagnosed again.


def _identity(verdict: Verdict, capture: Capture, job: JobFacts) -> str:
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


# ---------------------------------------------------------------------------------------------------------------------
# Hosts and GPUs.


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


# ---------------------------------------------------------------------------------------------------------------------
# What stays out of the document.


def _without_texts(document: dict[str, Json], with_evidence: bool) -> dict[str, Json]:
    return document if with_evidence else {name: _bare(value) for name, value in document.items()}


def _bare(value: Json) -> Json:
    if isinstance(value, (list, tuple)):
        return [_bare(item) for item in value]
    if isinstance(value, dict):
        return {name: _left_out(item) if name in _TEXTS else _bare(item) for name, item in value.items()}
    return value


def _left_out(value: Json) -> Json:
    """As the schema allows it: a string becomes empty; null stays."""
    return "" if isinstance(value, str) else value
