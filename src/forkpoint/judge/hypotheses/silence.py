"""Hypotheses about ranks without evidence: they did not reach the call, they died, or their files were not given."""

from collections.abc import Iterator

from forkpoint.judge.facts.blame import cut_off, find_exits
from forkpoint.judge.facts.cite import cite_event
from forkpoint.judge.hypotheses.asking import ask_log, end_of_log, is_or_are, who_is_meant, whom_to_ask
from forkpoint.judge.hypotheses.candidates import find_unheard
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Cause, Evidence, Hypothesis

MAX_SIDES = 8


def find_unstopped(spoke: set[int], incident: Incident) -> tuple[int, ...]:
    """Ranks that are not in `spoke`, except those that the launcher stopped: these had no chance to log anything."""
    exits = find_exits(incident)
    return tuple(r for r in incident.timeline.world if r not in spoke and not (r in exits and exits[r].is_stopped))


def read_silence(
    ranks: tuple[int, ...],
    others: tuple[int, ...],
    place: str,
    cited: tuple[Evidence, ...],
    incident: Incident,
    *,
    alive: bool = False,
) -> Iterator[Hypothesis]:
    """`ranks` are silent, `others` complain. If the latter are no more than the former, they may be the odd ones
    themselves. `alive`: the silent ones ran until somebody ended them, and a call would have failed on them, too.
    """
    few = 2 * len(ranks) < len(incident.timeline.world)
    named, sides = (ranks, ()) if few else ((), tuple((r,) for r in ranks[:MAX_SIDES]))
    path_named, path_sides = (ranks, ()) if few else ((), (*sides, others))
    if not incident.timeline.world_known and len(ranks) > len(others):
        # The number of ranks is not known: the few with logs do not single out one of many.
        named, sides, path_named, path_sides, ranks = (), (), (), (), ()
    gone = bool(cut_off(incident)) and not alive
    who = who_is_meant(named, sides)
    away = Hypothesis(
        Cause.RANK_LOST if gone else Cause.HOST_STALL,
        named,
        f"{who} {is_or_are(named)} {'stuck or late' if alive else 'stuck, late or gone'} and did not reach {place}",
        end_of_log(ranks, incident),
        alternatives=(Cause.STRAGGLER,) if alive else (Cause.HOST_STALL if gone else Cause.RANK_LOST, Cause.STRAGGLER),
        sides=sides,
        supports=cited,
        asks=ask_log(ranks, incident),
    )
    path = Hypothesis(
        Cause.DIVERGENT_PATH,
        path_named,
        f"{who_is_meant(path_named, path_sides)} made another call than {place.replace('the call', 'the one', 1)}, or the same with other arguments",
        "the dumps of all ranks beside the logs: forkpoint diagnose DUMPS LOGS",
        alternatives=(Cause.METADATA_MISMATCH, Cause.ORDER_INVERSION),
        sides=path_sides,
        supports=cited,
        asks="the dumps of all ranks",
    )
    yield from (away, path) if gone or alive else (path, away)


def left_no_trace(unheard: tuple[int, ...]) -> Hypothesis:
    named, sides = (unheard, ()) if len(unheard) == 1 else ((), tuple((rank,) for rank in unheard[:MAX_SIDES]))
    return Hypothesis(
        Cause.DIVERGENT_PATH,
        named,
        f"{who_is_meant(named, sides)}, of which nothing was given, left the path of the others, is stuck or gone",
        f"log, dump and stack of {whom_to_ask(named, sides)}",
        alternatives=(Cause.RANK_LOST, Cause.HOST_STALL),
        sides=sides,
        plain=f"what failed is in files of {plain_ranks(unheard)} that were not given",
        asks=f"the files of {plain_ranks(unheard)}",
    )


def nothing_said(incident: Incident) -> Hypothesis:
    """A failure is visible, but not the rank on which it began. Only files that were not given can show that."""
    if unheard := tuple(sorted(find_unheard(incident))):
        return left_no_trace(unheard)
    failed = [e for e in incident.capture.events if e.is_failure]
    return Hypothesis(
        Cause.DIVERGENT_PATH,
        (),
        "a rank left the path of the others, is stuck or gone; nothing that was given says which",
        "the logs and dumps of all ranks: forkpoint diagnose DUMPS LOGS",
        alternatives=(Cause.RANK_LOST, Cause.HOST_STALL),
        supports=tuple(cite_event(e) for e in failed[:2]),
        asks="the logs and dumps of all ranks",
    )
