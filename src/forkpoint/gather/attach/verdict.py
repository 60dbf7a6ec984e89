"""A verdict on a live job: which ranks could not be asked, and no accusation while ranks still move."""

import re
from dataclasses import replace

from msgspec import structs

from forkpoint.gather.attach.folder import Attached
from forkpoint.live.watch.rule import is_final
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from forkpoint.model.world import name_ranks


def with_attached(verdict: Verdict, attached: Attached) -> Verdict:
    """Ranks of a running job are asked at different moments, so one that looks late may not be. Then only what time cannot
    undo is reported, as `watch` does.
    """
    moves = bool(attached.moved) and not (verdict.divergence is not None and is_final(verdict.divergence))
    found = _moving(verdict, attached) if moves else _with_pids(verdict, attached)
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
