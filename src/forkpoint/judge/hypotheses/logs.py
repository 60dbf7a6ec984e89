"""Incident -> readings of what logs say, if no recorded call shows it; `stack_readings` says where ranks are."""

import re
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.blame import TIMEOUTS, find_closings
from forkpoint.judge.facts.cite import cite_event
from forkpoint.judge.facts.departures import Departure, find_departed
from forkpoint.judge.facts.late_ranks import find_gave_up, find_who_did_not_come
from forkpoint.judge.facts.log_lines import find_model_mismatch
from forkpoint.judge.facts.log_progress import view_logs
from forkpoint.judge.facts.older_dumps import says_nothing
from forkpoint.judge.facts.printed_state import find_odd_restored
from forkpoint.judge.facts.refusal import refused_in_all_to_all, refused_sizes
from forkpoint.judge.facts.stacks import (
    find_standings,
    is_waiting_for_ranks,
)
from forkpoint.judge.facts.symptom import has_ops, knows_nothing, launcher_stops, stands_still, without_dumps
from forkpoint.judge.facts.values import cite_out_of_line, find_first_out_of_line, what_to_recheck
from forkpoint.judge.hypotheses.asking import ask_log, ask_stack, end_of_log, who_is_meant, whom_to_ask
from forkpoint.judge.hypotheses.candidates import find_seen_waiting, find_unheard
from forkpoint.judge.hypotheses.silence import MAX_SIDES, find_unstopped, left_no_trace, nothing_said, read_silence
from forkpoint.judge.hypotheses.stacks import by_place, read_other_lines, read_stacks
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.verdict import Cause, Evidence, Hypothesis
from forkpoint.model.world import name_ranks

_AFTER_JOINING = frozenset({LogKind.NCCL_INIT, LogKind.LEAVING, LogKind.LEFT})
"""Lines that only a rank that has met the others prints."""


def read_words_and_stacks(incident: Incident) -> Iterator[Hypothesis]:
    if incident.divergence is not None and not says_nothing(incident.divergence, incident):
        yield from _not_joined(incident)
        return
    if knows_nothing(incident):
        return
    readings = [*_by_words(incident), *read_stacks(incident), *_nothing_wrong(incident)]
    yield from readings
    if not readings and (incident.timeline.world or any(e.is_failure for e in incident.capture.events)):
        yield nothing_said(incident)


# ---------------------------------------------------------------------------------------------------------------------
# No recorded call shows it: what logs say.


def _by_words(incident: Incident) -> Iterator[Hypothesis]:
    yield from _departed(incident)
    yield from _did_not_come(incident)
    yield from _other_models(incident)
    yield from _refused(incident)
    yield from _not_joined(incident)
    yield from _store_gone(incident)
    # If nobody timed out and connections broke, some rank left; that ranks are in different places proves nothing,
    # because pipeline stages always are.
    gone = bool(find_closings(incident)) and not any(e.kind in TIMEOUTS for e in incident.capture.events)
    parts = (_waited_for, read_other_lines) if gone else (read_other_lines, _waited_for)
    yield from (reading for part in parts for reading in part(incident))


def _departed(incident: Incident) -> Iterator[Hypothesis]:
    """Ranks whose own log says that they failed first."""
    for gone in [d for d in find_departed(incident) if d.how is not Departure.LEFT][:2]:
        raised = gone.event is not None and gone.event.exception is not None
        text = f": {gone.event.text}" if gone.event else ""
        yield Hypothesis(
            Cause.DIVERGENT_PATH if gone.how is Departure.RAISED else Cause.RANK_LOST,
            (gone.rank,),
            f"rank {gone.rank} {'raised and left' if raised else 'was lost'} before the others failed{text}",
            end_of_log((gone.rank,), incident),
            alternatives=((Cause.RANK_LOST if gone.how is Departure.RAISED else Cause.DIVERGENT_PATH),)
            if raised
            else (),
            supports=(cite_event(gone.event),) if gone.event else (),
            plain=f"rank {gone.rank} {'raised it and left' if raised else 'is gone'}",
            asks=ask_log((gone.rank,), incident),
        )


def _did_not_come(incident: Incident) -> Iterator[Hypothesis]:
    """The only rank that reports no failure, while all others gave up waiting."""
    rank = find_who_did_not_come(incident)
    if rank is None:
        return
    gave_up = find_gave_up(incident)
    waited = tuple(sorted(gave_up))
    cited = tuple(cite_event(event) for event in list(gave_up.values())[:3])
    yield from read_silence(
        (rank,), waited, f"the call in which {name_ranks(waited)} gave up", cited, incident, alive=True
    )


_CLOSED_STORE = re.compile(r"[Bb]roken pipe|got 0 bytes|[Cc]onnection (?:was likely closed|reset)")


def _store_gone(incident: Incident) -> Iterator[Hypothesis]:
    """All ranks that failed log that the store no longer answers: the process that hosts it has ended. That says
    nothing about their calls.
    """
    failed = [e for e in incident.capture.events if e.is_failure and e.exception and e.rank is not None]
    lost = [e for e in failed if _lost_store(e)]
    if not lost or len(lost) < len(failed):
        return
    ranks = tuple(sorted({e.rank for e in lost if e.rank is not None}))
    keeper = () if 0 in ranks else (0,)
    ended = "the process that hosts the store (usually rank 0) had ended"
    yield Hypothesis(
        Cause.RANK_LOST,
        (),
        f"{ended} while {name_ranks(ranks)} still used it: done, or failed before them",
        end_of_log(keeper, incident)
        if keeper
        else "the end of the log of whoever keeps the store, and of all ranks that ended",
        alternatives=(Cause.DIVERGENT_PATH,),
        supports=tuple(cite_event(e) for e in lost[:4]),
        plain=ended,
        asks=ask_log(keeper, incident) if keeper else "its log",
    )


def _lost_store(event: LogEvent) -> bool:
    named = (event.exception or "").endswith("DistNetworkError")
    asked = event.pattern == "unique-id" or "key-value store" in event.text
    return (named or asked) and bool(_CLOSED_STORE.search(f"{event.text} {event.detail('error') or ''}"))


def _refused(incident: Incident) -> Iterator[Hypothesis]:
    """A library refused what a peer sent: one of the two used a different size."""
    events = refused_sizes(incident)
    if not events:
        return
    refusing = tuple(sorted({e.rank for e in events if e.rank is not None}))
    others = tuple(r for r in incident.timeline.world if r not in refusing)
    in_pairs = refused_in_all_to_all(incident)
    single = len(refusing) == 1 and len(others) > 1 and not in_pairs
    standings = {r: s for r, s in find_standings(incident).items() if is_waiting_for_ranks(s.stack)}
    if len(places := by_place(standings)) > 1:
        yield Hypothesis(
            Cause.DIVERGENT_PATH,
            (),
            f"{who_is_meant((), places[:MAX_SIDES])} made another call than the others, or the same with another size",
            "the dumps of all ranks, recorded with TORCH_FR_BUFFER_SIZE=2000: which call did each make, and in which order?",
            alternatives=(Cause.METADATA_MISMATCH,),
            sides=places[:MAX_SIDES],
            supports=(*(standings[side[0]].evidence for side in places[:3]), cite_event(events[0])),
            asks="the dumps of all ranks",
        )
    named, sides = (refusing, ()) if single else ((), (refusing, others) if refusing and others else ())
    cited = tuple(cite_event(e) for e in events[:4])
    decides = "PYTHONFAULTHANDLER=1 and the dumps of all ranks: where did each stand, with which sizes?"
    who = who_is_meant(named, sides)
    size = Hypothesis(
        Cause.METADATA_MISMATCH,
        named,
        f"{who} used another size in one call",
        decides,
        sides=sides,
        supports=cited,
        asks="the dumps of all ranks",
    )
    yield _refused_of_a_pair(refusing, others, cited) if in_pairs and refusing and others else size
    yield replace(size, cause=Cause.DIVERGENT_PATH, says=f"{who} made another call than the others")


def _refused_of_a_pair(refusing: tuple[int, ...], others: tuple[int, ...], cited: tuple[Evidence, ...]) -> Hypothesis:
    """In an all-to-all each pair has its own sizes: a rank that refuses got what another one sent, and either may have
    computed it wrongly.
    """
    receiver = name_ranks(refusing)
    sides = tuple((rank,) for rank in others[: MAX_SIDES - 1])
    return Hypothesis(
        Cause.METADATA_MISMATCH,
        (),
        f"{who_is_meant((), sides)} sent another amount than {receiver} waited for, or {receiver} waited for a wrong one",
        f"print input and output splits right before the all_to_all on every rank: whose amount for {receiver} is not the one for "
        "which it waits?",
        sides=(*sides, refusing),
        supports=cited,
        plain=f"a rank sent another amount than {receiver} waited for",
        asks="printing the splits before the all_to_all on every rank",
    )


def _other_models(incident: Incident) -> Iterator[Hypothesis]:
    """DDP refused to start, and no model is the majority's."""
    models = find_model_mismatch(incident)
    if models is not None and not models.odd:
        yield Hypothesis(
            Cause.METADATA_MISMATCH,
            (),
            f"{who_is_meant((), models.sides)} built another model than the others: {models.told}",
            "print the parameters' names and shapes on every rank, before DDP is made",
            alternatives=(Cause.DIVERGENT_PATH,),
            sides=models.sides,
            supports=tuple(cite_event(e) for e in models.events[:4]),
            plain=f"{who_is_meant((), models.sides)} built another model than the others",
            asks="printing the parameters' names and shapes on every rank",
        )


def _waited_for(incident: Incident) -> Iterator[Hypothesis]:
    """Some ranks timed out: readings for ranks that were behind them, ahead of them, or silent."""
    view = view_logs(incident)
    if view is None:
        yield from _unmentioned(incident)
        return
    cited = tuple(cite_event(p.event) for p in (*view.behind, *view.other, *view.ahead, *view.waiting)[:4])
    told = (*view.waiting, *view.behind, *view.other, *view.ahead, *view.elsewhere)
    silent = find_unstopped({p.rank for p in told}, incident)
    place = f"{view.desc or view.group or 'the group'} seq {view.seq}" if view.seq is not None else "that call"
    for progress, cause, says in (
        (view.other, Cause.METADATA_MISMATCH, "made another call, or used another size"),
        (view.behind, Cause.DIVERGENT_PATH, "took another path"),
        (view.behind, Cause.HOST_STALL, "is stuck on its host"),
        (view.ahead, Cause.DIVERGENT_PATH, "made a call that the others did not make, or skipped one"),
    ):
        ranks = tuple(sorted({p.rank for p in progress}))
        if ranks:
            decides = f"the dumps and stacks of {name_ranks(ranks)}: forkpoint diagnose DUMPS LOGS"
            did = says.replace("is stuck on its host", "are stuck on their hosts") if len(ranks) > 1 else says
            told = f"{name_ranks(ranks)} {did} at {place}"
            past = f"{plain_ranks(ranks)} skipped it or made another call"
            yield Hypothesis(
                cause,
                ranks,
                told,
                decides,
                supports=cited,
                plain=past if progress is view.ahead else "",
                asks=f"the dump and {ask_stack(ranks, incident)}",
            )
    spoke = tuple(sorted({p.rank for p in view.waiting}))
    if silent:
        yield from read_silence(silent, spoke, place, cited, incident)


def _unmentioned(incident: Incident) -> Iterator[Hypothesis]:
    """Ranks that do not mention the failure that others report."""
    failed = [e for e in incident.capture.events if e.kind in FAILURES and e.rank is not None]
    spoke = tuple(sorted({e.rank for e in failed if e.rank is not None}))
    silent = find_unstopped(set(spoke), incident)
    if failed and silent:
        place = "the call in which the others failed"
        yield from read_silence(silent, spoke, place, (cite_event(failed[0]),), incident)


def _not_joined(incident: Incident) -> Iterator[Hypothesis]:
    """Ranks met, or tried to, and no call was ever recorded: those that neither complain nor are seen to wait."""
    events = [e for e in incident.capture.events if e.kind in (LogKind.RENDEZVOUS, LogKind.STORE)]
    if not events or has_ops(incident):
        return
    spoke = {e.rank for e in incident.capture.events if e.is_failure} | find_seen_waiting(incident)
    joined = {e.rank for e in incident.capture.events if e.kind in _AFTER_JOINING}
    silent = tuple(r for r in incident.timeline.world if r not in spoke | joined)
    if joined >= set(incident.timeline.world):
        return
    few = 2 * len(silent) < len(incident.timeline.world)
    named, sides = (silent, ()) if few else ((), tuple((rank,) for rank in silent[:MAX_SIDES]))
    who = who_is_meant(named, sides) if silent else "a rank"
    if any(
        e.work is not None and (e.work.seq or 0) > 1 for e in incident.capture.events
    ):  # the job had started to communicate
        made = f"{who} did not come when the others made a communicator"
        asked = f"the stacks of {whom_to_ask(named, sides)}"
        cited = tuple(cite_event(e) for e in events[:3])
        others = (Cause.DIVERGENT_PATH, Cause.HOST_STALL)
        yield Hypothesis(
            Cause.NEVER_JOINED,
            named,
            made,
            asked,
            alternatives=others,
            sides=sides,
            supports=cited,
            plain=made,
            asks=asked,
        )
        return
    yield Hypothesis(
        Cause.NEVER_JOINED,
        named,
        f"{who} never joined the job",
        "on each node: is the process there, and does it reach MASTER_ADDR:MASTER_PORT?",
        alternatives=(Cause.HOST_STALL,),
        sides=sides,
        supports=tuple(cite_event(e) for e in events[:3]),
        asks="whether its process runs and reaches MASTER_ADDR",
    )


def _nothing_wrong(incident: Incident) -> Iterator[Hypothesis]:
    """The given evidence agrees and shows no failure."""
    stopped = bool(launcher_stops(incident))
    failed = any(e.is_failure or (e.kind is LogKind.COMMAND_FAILED and not stopped) for e in incident.capture.events)
    told = failed or stands_still(incident) or incident.outlived_timeout
    absent = without_dumps(incident)
    first = find_first_out_of_line(incident.capture.values)
    if first is not None:
        ranks = tuple(sorted({one.rank for one in first.out}))
        named = ranks if 2 * len(ranks) < len(incident.timeline.world) else ()
        yield Hypothesis(
            Cause.SILENT_CORRUPTION,
            named,
            "most ranks at once, so the data or the optimisation is the cause and not a rank"
            if first.alike
            else f"{who_is_meant(named, ())} computed wrong values",
            what_to_recheck(first),
            supports=cite_out_of_line(first, incident.capture.values),
            plain="the data or the optimisation is the cause" if first.alike else "",
            asks="the batches of that step" if first.alike else "checking again on another device",
        )
    elif not told and (restored := find_odd_restored(incident)):
        yield restored.reading
    elif not told:
        yield Hypothesis(
            Cause.HEALTHY,
            (),
            "the launcher was told to stop before anything failed: the job was running, or it stood still until somebody stopped it"
            if stopped
            else "nothing that was given shows a failure: the job was healthy, or what failed left no trace in these files",
            f"the dumps of {name_ranks(absent)} beside the others" if absent else "the end of every rank's log",
            asks="the missing dumps" if absent else "the end of every rank's log",
        )
        if unheard := tuple(sorted(find_unheard(incident))):
            yield left_no_trace(unheard)
