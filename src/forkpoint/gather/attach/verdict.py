"""A verdict on a live job: which ranks could not be asked, and no accusation while ranks still move."""

from dataclasses import replace

from forkpoint.gather.attach.folder import Attached
from forkpoint.live.watch.rule import is_final
from forkpoint.model.verdict import Action, Cause, Symptom, Verdict
from forkpoint.model.world import name_ranks


def with_attached(verdict: Verdict, attached: Attached) -> Verdict:
    """Ranks of a running job are asked at different moments, so one that looks late may not be. Then only what time cannot
    undo is reported, as `watch` does.
    """
    moves = bool(attached.moved) and not (verdict.divergence is not None and is_final(verdict.divergence))
    found = _moving(verdict, attached) if moves else verdict
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


def _notes(attached: Attached) -> list[str]:
    notes: dict[str, list[int]] = {}
    for rank in attached.ranks:
        for missing in rank.missing:
            notes.setdefault(missing, []).append(rank.rank)
    told = [f"{name_ranks(ranks)}: {missing}" for missing, ranks in notes.items()]
    return [*told, *([f"{name_ranks(attached.unseen)}: not asked"] if attached.unseen else []), *attached.notes]
