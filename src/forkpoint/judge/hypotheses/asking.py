"""Phrases that hypotheses share: which ranks are meant, what evidence to ask for, and what is missing."""

from forkpoint.judge.facts.cite import live_stack
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.world import format_ranks, name_ranks

Sides = tuple[tuple[int, ...], ...]
"""Sets of ranks, one of which is at fault."""


def who_is_meant(named: tuple[int, ...], sides: Sides) -> str:
    if named:
        return name_ranks(named)
    if not sides:
        return "a rank"
    if len(sides) > 2 and all(len(side) == 1 for side in sides):
        return f"one of {name_ranks(rank for side in sides for rank in side)}"
    shown = [name_ranks(side) for side in sides[:3]]
    left = len(sides) - len(shown)
    more = [] if not left else ["another one"] if left == 1 else [f"one of {left} others"]
    return " or ".join([*shown, *more])


def is_or_are(named: tuple[int, ...]) -> str:
    """`is` or `are` for `name_ranks(ranks)`; with several sides only one of them is meant."""
    return "are" if len(named) > 1 else "is"


def whom_to_ask(named: tuple[int, ...], sides: Sides) -> str:
    return name_ranks(named or tuple(rank for side in sides for rank in side)) if named or sides else "every rank"


def end_of_log(ranks: tuple[int, ...], incident: Incident) -> str:
    """The request for a log's end. Empty if the log was given: it did not decide, so asking again does not help."""
    whose = name_ranks(ranks) if ranks else "every rank that printed nothing"
    wanted = "the exit code" if _are_heard(ranks, incident) else "the last 50 lines of the log"
    return f"{wanted} of {whose}{on_hosts(ranks, incident)}, and `dmesg -T | tail -50` there"


def _are_heard(ranks: tuple[int, ...], incident: Incident) -> bool:
    whole = {rank for file, rank in incident.capture.logs if file not in incident.capture.cut_logs}
    return bool(ranks) and whole.issuperset(ranks)


def stack_of(ranks: tuple[int, ...], incident: Incident) -> str:
    pids = {place.rank: place.pid for place in incident.capture.places if place.pid}
    pid = pids.get(ranks[0], f"<pid of rank {ranks[0]}>") if len(ranks) == 1 else f"<pid> of {name_ranks(ranks)}"
    taken = f"py-spy dump --pid {pid}{on_hosts(ranks, incident)}"
    if not _lack_stacks(ranks, incident):
        return f"{taken} again, ten seconds after the first: a rank still at the same line is stuck"
    lacks_dump = any(rank not in incident.timeline.traces for rank in ranks)
    they, their = ("it hangs", "its dump") if len(ranks) == 1 else ("they hang", "their dumps")
    return f"{taken} while {they}{f', or {their} beside the others' if lacks_dump else ''}"


def ask_log(ranks: tuple[int, ...], incident: Incident) -> str:
    """`end_of_log` in a few words."""
    wanted = "the exit code" if _are_heard(ranks, incident) else "the end of the log"
    return f"{wanted} of {plain_ranks(ranks)}" if ranks else "the end of every silent rank's log"


def ask_stack(ranks: tuple[int, ...], incident: Incident) -> str:
    """`stack_of` in a few words."""
    stacks = f"the {'stack' if len(ranks) == 1 else 'stacks'} of {plain_ranks(ranks)}"
    return stacks if _lack_stacks(ranks, incident) else f"{stacks} again, ten seconds later,"


def _lack_stacks(ranks: tuple[int, ...], incident: Incident) -> list[int]:
    return [rank for rank in ranks if live_stack(rank, incident) is None]


def on_hosts(ranks: tuple[int, ...], incident: Incident) -> str:
    hosts = sorted({place.host for place in incident.capture.places if place.rank in ranks})
    return f" on {', '.join(hosts[:3])}" if hosts else ""


def what_is_lacking(ranks: tuple[int, ...], incident: Incident) -> tuple[str, ...]:
    """Which evidence of these ranks is missing."""
    traces, heard = incident.timeline.traces, incident.heard
    kinds = (
        ("dump", [r for r in ranks if r not in traces]),
        ("log", [r for r in ranks if r not in heard]),
        ("stack", _lack_stacks(ranks, incident)),
    )
    return tuple(
        f"the {kind} of rank{'s' if len(lack) > 1 else ''} {format_ranks(lack, 8)}" for kind, lack in kinds if lack
    )
