"""Arguments that no dump holds, roots and the splits of an all_to_all: where they may differ, and where they must."""

from forkpoint.align.slots import sequence
from forkpoint.detectors.cite import events_of, group_of
from forkpoint.model.divergence import Divergence
from forkpoint.model.frames import user_frames
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import OpState, Stack
from forkpoint.model.op_names import SYNCHRONISING
from forkpoint.symptom import hang_is_shown

_RECEIVED_ONCE = frozenset({"broadcast", "scatter"})
"""Every member but the root receives once, from one peer; what a member sends on it has received before."""


def may_differ_unseen(divergence: Divergence, incident: Incident) -> bool:
    """Members may have brought other roots or splits: to this slot, or to one before it that left data behind.

    NCCL checks neither. A broadcast with two roots completes, and what nobody took waits on the connection for the next
    op that uses it. The same call done since then, by all, went over the same connections and found them clean.
    """
    if any(c.op and _hides_arguments(c.op) for c in divergence.cohorts):
        return True
    track = group_of(divergence, incident).track(divergence.sides[0][0])
    if track is None or divergence.hang_seq is None:
        return False
    tables = incident.timeline.tables
    held = sequence(track, tables)
    calls = held.match[: divergence.hang_seq - held.first + 1].tolist()
    hiding = [
        at for at, call in enumerate(calls) if any(_hides_arguments(s.op) for s in tables.signatures.get(call, ()))
    ]
    return bool(hiding) and calls[-1] not in calls[hiding[-1] + 1 : -1]


def find_two_roots(divergence: Divergence, incident: Incident) -> tuple[LogEvent, ...]:
    """The words of members that all wait to send in one rooted op of gloo, where too few are left to receive.

    With one root, each send that does not end has a member of its own that has not received. gloo waits to receive
    first and to send last, so such a member would stand in the slot and say that it waits to receive, or it is one of
    those of which nothing is known. Where these are fewer than the senders, there is more than one root.
    """
    if divergence.channel or not all(c.op in _RECEIVED_ONCE for c in divergence.cohorts if c.op):
        return ()
    waiting = [c for c in divergence.cohorts if c.op and c.state is not OpState.COMPLETED]
    stuck = [rank for cohort in waiting for rank in cohort.ranks]
    if not all(incident.timeline.traces[r].comm_lib == "gloo" for r in stuck) or not hang_is_shown(incident):
        return ()
    places = {_place(c.stack) for c in waiting if c.stack}
    words = [_waits_to_send(rank, places, incident) for rank in stuck]
    told = tuple(word for word in words if word)
    return told if len(told) == len(stuck) > _unaccounted(divergence, incident) else ()


def _hides_arguments(op: str) -> bool:
    return op not in SYNCHRONISING or op.startswith("all_to_all")


def _waits_to_send(rank: int, places: set[tuple[tuple[str, int], ...]], incident: Incident) -> LogEvent | None:
    """Its only time-out, told from where the op was called."""
    words = events_of(rank, incident, LogKind.PEER_TIMEOUT)
    if len(words) != 1 or words[0].detail("direction") != "send" or {_place(words[0].stack)} != places:
        return None
    return words[0]


def _place(stack: Stack | None) -> tuple[tuple[str, int], ...]:
    return tuple((f.filename, f.line) for f in user_frames(stack))


def _unaccounted(divergence: Divergence, incident: Incident) -> int:
    """Ranks that may be members and of which nothing is known here."""
    return len(divergence.unknown) + incident.timeline.unseen
