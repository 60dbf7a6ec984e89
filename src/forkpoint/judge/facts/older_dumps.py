"""Dumps that are older than the failure: taken while the job was still running, or before the call that ended a rank."""

from dataclasses import replace

from forkpoint.diverge.waits import find_waits
from forkpoint.judge.facts.blame import blames_peers
from forkpoint.model.frames import in_side_thread, program_lines
from forkpoint.model.incident import Divergence, Incident, PartingKind, fact
from forkpoint.model.log import LogEvent, LogKind

_WAITS = (PartingKind.ABSENCE, PartingKind.STUCK, PartingKind.CYCLE)


def says_nothing(divergence: Divergence, incident: Incident) -> bool:
    """Some rank waits, and the dumps do not show where any of the others were: they are older."""
    missed = {*divergence.unknown, *(rank for side in divergence.sides[1:] for rank in side)}
    others = set(divergence.group.ranks) - set(divergence.sides[0])
    hidden = {rank for rank in missed if rank in divergence.unknown or _was_dumped_before(rank, incident)}
    older = missed == hidden and (others <= missed or not _were_refused(incident).isdisjoint(missed))
    return divergence.how is PartingKind.ABSENCE and not divergence.odd and older


def _were_refused(incident: Incident) -> set[int | None]:
    """Ranks that gloo ended at once: whatever their dumps hold is older than that, and so are dumps of their peers that
    miss them.
    """
    return {e.rank for e in incident.capture.events if e.kind is LogKind.SIZES_DIFFER}


def _was_dumped_before(rank: int, incident: Incident) -> bool:
    """Nothing is pending in its dump, although by its own log a gloo call ended the rank: the dump is older than that
    call.
    """
    trace = incident.timeline.traces.get(rank)
    if trace is None or trace.comm_lib != "gloo" or rank in incident.timeline.stands:
        return False
    return any(e.kind is LogKind.SIZES_DIFFER or blames_peers(e) for e in incident.said.get(rank, ()))


@fact
def have_gone_on(incident: Incident) -> bool:
    """Every rank that waits in its dump ended in another call, by its last log lines. Gloo's calls block: so all ranks
    reached those calls after all, and the dumps were taken while the job was running.
    """
    waiting = [rank for one in find_waits(incident.timeline).waiting for rank in one.ranks]
    return bool(waiting) and all(_ended_elsewhere(rank, incident) for rank in waiting)


def without_old_waits(incident: Incident) -> Incident:
    """Removes waits that ended, so that they accuse nobody."""
    kept = tuple(d for d in incident.divergences if d.how not in _WAITS)
    aside = len(kept) < len(incident.divergences) and have_gone_on(incident)
    return replace(incident, divergences=kept, facts=dict(incident.facts)) if aside else incident


def _ended_elsewhere(rank: int, incident: Incident) -> bool:
    """Its main thread did. Another thread may wait in a call for ever, whatever the main thread does."""
    trace, stands = incident.timeline.traces.get(rank), incident.timeline.positions.get(rank, ())
    words = _last_words(rank, incident)
    if trace is None or trace.comm_lib != "gloo" or words is None:
        return False
    stacks = [p.op.stack for p in stands if p.op.stack and not in_side_thread(p.op.stack)]
    elsewhere = all(program_lines(stack) != program_lines(words.stack) for stack in stacks)
    return bool(stacks) and len(stacks) == len(stands) and elsewhere


def _last_words(rank: int, incident: Incident) -> LogEvent | None:
    """The traceback that ended its whole program, because of its peers. One that was caught and logged does not begin
    at the script, or more lines follow it.
    """
    failed = [e for e in incident.said.get(rank, ()) if e.exception and e.stack and not in_side_thread(e.stack)]
    if not failed or not blames_peers(failed[-1]) or failed[-1].stack[-1].name != "<module>":
        return None
    last = failed[-1]
    later = any(
        line.line > last.line for line in incident.capture.printed.get(last.file, ()) if line.rank in (None, rank)
    )
    return None if later else last
