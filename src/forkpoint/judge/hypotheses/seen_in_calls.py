"""Votes on a call that also count ranks without a dump: their stack, traceback or log shows them in it."""

from msgspec import Struct

from forkpoint.judge.facts.calls import outvoted_side
from forkpoint.judge.facts.stacks import find_odd_by_stacks, find_standings
from forkpoint.judge.hypotheses.candidates import find_seen_in
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.model.frames import in_two_threads, program_lines
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.replay import Slot

DEFAULT_GROUP = "default_pg"


def find_odd_seen(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    return find_odd_by_stacks(divergence, incident) or find_odd_in_ring(divergence, incident)


def find_behind_by_stacks(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """Who did not come to the call in which the others wait, if dumps alone do not show who the others are."""
    if divergence.how is not PartingKind.ABSENCE or divergence.channel or divergence.odd or len(divergence.sides) != 2:
        return ()
    slots = recorded_job(incident).slots
    here = next(
        (s for s in slots if (s.group, s.seq, s.channel) == (divergence.group, divergence.hang_seq, None)), None
    )
    seen = _seen_in(here, incident) if here else frozenset[int]()
    votes = [len(divergence.sides[0]) + len(seen & set(divergence.unknown)), len(divergence.sides[1])]
    return outvoted_side(votes, divergence, incident) if votes[0] > votes[1] else ()


def _seen_in(slot: Slot, incident: Incident) -> frozenset[int]:
    """A line identifies the call if ranks waiting in the slot made no call of another group from it, and if hosts wait
    in calls. gloo's do; with NCCL, one of these ranks must be seen there.
    """
    timeline, standings = incident.timeline, find_standings(incident)
    whole = slot.group.declared or slot.group.desc == DEFAULT_GROUP
    places = {program_lines(timeline.positions[r][0].op.stack) for r in slot.waiting}
    block = all(timeline.traces[r].comm_lib == "gloo" for r in slot.waiting)
    stand = any(standings[r].place in places for r in slot.waiting & standings.keys())
    alone = all(_calls_from(r, places, incident) <= {slot.group.name} for r in slot.waiting)
    return find_seen_in(slot, incident) if whole and alone and (block or stand) else frozenset()


def _calls_from(rank: int, places: set[tuple[tuple[str, int], ...]], incident: Incident) -> set[str]:
    """The groups of this rank's recent calls from these lines."""
    trace, stacks = incident.timeline.traces[rank], incident.timeline.tables.stacks
    made = {key for key in set(trace.recent_stacks.tolist()) if program_lines(stacks.get(key)) in places}
    calls = zip(trace.recent_stacks.tolist(), trace.recent_groups.tolist(), strict=True)
    return {trace.groups[group].name for stack, group in calls if stack in made}


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that wait for each other in calls of different groups.


class _Votes(Struct, frozen=True):
    """Votes on calls of one kind: the same number in groups with the same description."""

    made: frozenset[int]
    missed: frozenset[int]
    unknown: frozenset[int]
    undisputed: bool
    """In no group does the majority of members say otherwise."""

    @property
    def few(self) -> frozenset[int]:
        return min(self.made, self.missed, key=len)

    @property
    def many(self) -> frozenset[int]:
        return max(self.missed, self.made, key=len)

    def decide(self, unseen: int) -> bool:
        everyone = len(self.made) + len(self.missed) + len(self.unknown) + unseen
        return self.undisputed and 2 * len(self.many) > everyone


def find_odd_in_ring(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The same few ranks are outvoted in every call of the ring: they made a call that most members of its group did
    not, and are missing where most wait. A rank that another one delays is with the majority in one call and with
    the minority in another.
    """
    timeline, slots = incident.timeline, recorded_job(incident).slots
    if divergence.how is not PartingKind.CYCLE or divergence.odd or any(slot.channel for slot in slots):
        return ()
    if in_two_threads(timeline.positions[rank][0].op.stack for slot in slots for rank in slot.waiting):
        return ()
    kinds: dict[tuple[str, int], list[Slot]] = {}
    for slot in slots:
        kinds.setdefault((slot.group.desc, slot.seq), []).append(slot)
    seen = {id(slot): _seen_in(slot, incident) for slot in slots}
    found = {kind: _count(of_kind, seen) for kind, of_kind in kinds.items()}
    named = frozenset[int]().union(*(votes.few for votes in found.values()))
    # Ranks of which nothing is left count once, in the call of all ranks; the others then must not contradict it.
    unseen = {kind: timeline.unseen if kind[0] == DEFAULT_GROUP else 0 for kind in found}
    everyone = all(votes.decide(unseen[kind]) and votes.many.isdisjoint(named) for kind, votes in found.items())
    everyone = everyone and (timeline.unseen in (0, *unseen.values()) or all(s.group.declared for s in slots))
    known = frozenset[int]().union(*(votes.made | votes.missed for votes in found.values())) >= set(timeline.world)
    few = 2 * len(named) < len(timeline.world)
    return tuple(sorted(named)) if everyone and known and few and not _made_by_others(named, found, incident) else ()


def _count(slots: list[Slot], seen: dict[int, frozenset[int]]) -> _Votes:
    made = {id(s): s.waiting | s.busy | seen[id(s)] for s in slots}
    elsewhere = frozenset[int]().union(*(there for at, there in seen.items() if at not in made))
    all_made = frozenset[int]().union(*made.values())
    missed = frozenset(r for s in slots for r in s.absent) - all_made
    unknown = frozenset(r for s in slots for r in s.unknown) - all_made - elsewhere
    signs = {len(made[id(s)]) > len(s.absent - all_made) for s in slots if len(made[id(s)]) != len(s.absent - all_made)}
    return _Votes(all_made, missed, unknown, len(signs) < 2)


def _made_by_others(named: frozenset[int], found: dict[tuple[str, int], _Votes], incident: Incident) -> bool:
    """If the named ranks made a call that most of its members did not, and other ranks made it in another group of its
    kind, then the call is normal.
    """
    for (desc, seq), votes in found.items():
        groups = [group for group in incident.timeline.groups if group.group.desc == desc]
        others = [rank for group in groups for rank in group.traces if rank not in named]
        tracks = [track for group in groups for rank in others if (track := group.track(rank))]
        if votes.made == votes.few and any(track.last_seq >= seq for track in tracks):
            return True
    return False
