"""Groups that not all ranks set up or use alike: one that a thread of one rank uses alone, one that all ranks create
but none gets.
"""

from msgspec import Struct

from forkpoint.judge.facts.blame import asked_for_id, cut_off
from forkpoint.judge.facts.stacks import Standing, find_all_standings, is_making_group
from forkpoint.judge.facts.symptom import hang_is_shown, has_ops, stands_still
from forkpoint.model.frames import bare_name, in_side_thread, short_name
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind


def is_alone_in_group(divergence: Divergence, incident: Incident) -> bool:
    """A thread of one rank made the first call of a group that no other rank ever used, and all others that are seen
    wait elsewhere.
    """
    timeline, present = incident.timeline, divergence.sides[0]
    alone = (
        divergence.how is PartingKind.ABSENCE and len(present) == 1 and divergence.seq == 1 and not divergence.channel
    )
    stacks = [c.stack for c in divergence.cohorts if c.op and c.stack]
    if not alone or not stacks or not all(map(in_side_thread, stacks)) or not hang_is_shown(incident):
        return False
    others = [rank for rank in timeline.traces if rank not in present]
    used = {group.desc for rank in others for group in timeline.traces[rank].groups if group.collectives}
    waiting = all(rank in timeline.stands and not timeline.traces[rank].is_partial for rank in others)
    return len(others) > timeline.unseen + 1 and divergence.group.desc not in used and waiting


def find_all_making_a_group(incident: Incident) -> tuple[Standing, ...]:
    """Every rank is in `new_group` at one line of a job that communicated before. torch names groups by a counter on
    each rank, so ranks with different counts wait for each other under different names.
    """
    inside = tuple(find_all_standings(incident).values())
    if not has_ops(incident) or not stands_still(incident) or cut_off(incident):
        return ()
    named = all(any(bare_name(frame) == "new_group" for frame in one.stack) for one in inside)
    at_one_line = len({one.place for one in inside}) == 1 and bool(inside[0].place)
    return inside if named and at_one_line and all(is_making_group(one.stack) for one in inside) else ()


def tell_all_making(making: tuple[Standing, ...]) -> tuple[str, str]:
    """What every rank does there, in full and as a headline."""
    file, line = making[0].place[0]
    at = f"{short_name(file)}:{line}"
    why = "it is not the same group everywhere, or not in the same order"
    return (
        f"every rank creates a group at {at} and none gets on: {why}",
        f"all ranks create a group at {at}, but not the same one",
    )


class AbsentAtSetUp(Struct, frozen=True):
    rank: int
    waits: LogEvent
    """Where it was instead, by its own log."""
    asked: tuple[LogEvent, ...]
    """Log lines of the ranks that asked it for the communicator's id."""

    @property
    def asking(self) -> tuple[int, ...]:
        return tuple(sorted(e.rank for e in self.asked if e.rank is not None))


def find_absent_at_set_up(incident: Incident) -> AbsentAtSetUp | None:
    """All ranks but the first ask it for the id of a communicator, and do not get it: by its own log it is in another
    call.
    """
    asking = {e.rank: e for e in incident.capture.events if asked_for_id(e) and e.rank is not None}
    rest = set(incident.timeline.world) - asking.keys()
    if (
        len(asking) < len(rest) + 1
        or rest != {min(incident.timeline.world, default=-1)}
        or incident.timeline.unseen > 1
    ):
        return None
    (first,) = rest
    waits = [e for e in incident.said.get(first, ()) if e.kind is LogKind.WATCHDOG_TIMEOUT and e.work]
    return AbsentAtSetUp(first, waits[0], tuple(asking.values())) if waits else None
