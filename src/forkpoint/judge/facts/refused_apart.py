"""Ranks that gloo ended for a size, and which were in another call than the ranks around them, judged by sizes alone.

gloo reduces in a ring: each rank receives from one neighbour, and only a rank that gets more bytes than it expects is ended. So of
ranks that are together in a smaller call, the one at the edge is ended. If both neighbours of a rank that was ended are in another
call, this rank is alone between them; and if no other rank was ended, there are no more like it.

The size that it expected shows that it was not in its neighbours' call by mistake: that call never has this size.
"""

from collections.abc import Iterator

from msgspec import Struct

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.judge.facts.blame import find_exits
from forkpoint.judge.facts.cite import cite_event, verb
from forkpoint.judge.facts.refusal import BY_GLOO, message_lengths, refused_sizes
from forkpoint.judge.facts.rounds import is_in_step
from forkpoint.judge.facts.stacks import Standing, find_standings, is_waiting_for_ranks
from forkpoint.model.frames import Lines, bare_name, is_python, program_lines, user_place
from forkpoint.model.headline import UNKNOWN_CALL
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, fact
from forkpoint.model.log import LogEvent
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import ProcessGroup, name_ranks

_IN_A_RING = "all_reduce"
_ABORT = "SIGABRT"
_AGREE = 2
"""Ranks that expect the same size outvote one that sends another."""


class RefusedApart(Struct, frozen=True):
    events: tuple[LogEvent, ...]
    """One for each rank that was ended."""
    others: tuple[Standing, ...]
    """The ranks whose place is known, all in one call."""
    same_size_at: str | None
    """Where a recorded call has the size that was expected."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(e.rank for e in self.events if e.rank is not None))

    @property
    def told(self) -> str:
        ranks, first, seen = self.ranks, self.events[0], [one.rank for one in self.others]
        sizes = f"{first.detail('sent')} bytes where {verb(ranks, 'it', 'they')} expected {first.detail('expected')}"
        like = f", the size of the call at {self.same_size_at}" if self.same_size_at else ""
        there = f"{name_ranks(seen)} {verb(seen, 'was', 'were')} in the call at {user_place(self.others[0].stack)}, which never has that size"
        return f"{name_ranks(ranks)} got {sizes}{like}; {there}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (*(cite_event(e) for e in self.events[:2]), *(one.evidence for one in self.others[:3]))

    @property
    def divergence(self) -> Divergence:
        usual = Cohort(
            tuple(one.rank for one in self.others), Role.WAITING, self.others[0].called, stack=self.others[0].stack
        )
        return unrecorded_divergence(
            PartingKind.METADATA, (usual, Cohort(self.ranks, Role.WAITING, UNKNOWN_CALL)), self.ranks
        )


@fact
def find_refused_apart(incident: Incident) -> RefusedApart | None:
    """None also if more than one size was refused, or if the ranks that were ended are not fewer than half."""
    events = {e.rank: e for e in refused_sizes(incident) if e.pattern == BY_GLOO and e.rank is not None}
    sizes = {(e.detail("sent"), e.detail("expected")) for e in events.values()}
    world, timeline = set(incident.timeline.world), incident.timeline
    standings = {r: s for r, s in find_standings(incident).items() if r in world - events.keys()}
    if len(sizes) != 1 or not standings or timeline.unseen > 1 or 2 * len(events) >= len(world):
        return None
    places = {one.place for one in standings.values()}
    if len(places) != 1 or () in places or not all(map(_is_in_a_ring, standings.values())):
        return None
    if not (_are_alone(set(events), set(standings), incident) and _nobody_else_was_ended(set(events), incident)):
        return None
    ((sent, expected),) = sizes
    place = places.pop()
    here, elsewhere = _lengths(place, incident)
    in_backward = all(one.called == UNKNOWN_CALL for one in standings.values())
    of_model = in_backward and not _brings_sizes(standings) and _cannot_pass(incident)
    if not ((int(sent or 0) in here and int(expected or 0) not in here) if here else of_model):
        return None
    told = tuple(events[rank] for rank in sorted(events))
    return RefusedApart(told, tuple(standings[rank] for rank in sorted(standings)), elsewhere.get(int(expected or 0)))


class UnlikeSenders(Struct, frozen=True):
    events: tuple[LogEvent, ...]
    """One for each rank that was ended."""
    standings: tuple[Standing, ...]
    """The ranks that were not, all in one all_to_all."""

    @property
    def odd(self) -> tuple[int, ...]:
        """Of several that were not ended, some may be like those that were, and did not live to get the larger size."""
        return (self.standings[0].rank,) if len(self.standings) == 1 else ()

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (*(cite_event(e) for e in self.events[:3]), *(one.evidence for one in self.standings[:2]))

    @property
    def divergence(self) -> Divergence:
        first = self.standings[0]
        sides = (
            tuple(sorted(e.rank for e in self.events if e.rank is not None)),
            tuple(one.rank for one in self.standings),
        )
        cohorts = tuple(Cohort(ranks, Role.WAITING, first.called, stack=first.stack) for ranks in sides)
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


@fact
def find_unlike_senders(incident: Incident) -> UnlikeSenders | None:
    """Several ranks were ended in an all_to_all, each because it got the same larger size than the same one that it expected: they
    agree among themselves. All others were in it, too, and sent more. All printed the same rounds, so none is some calls off.
    """
    events = {e.rank: e for e in refused_sizes(incident) if e.pattern == BY_GLOO and e.rank is not None}
    sizes = {(e.detail("sent"), e.detail("expected")) for e in events.values()}
    rest, standings = sorted(set(incident.timeline.world) - events.keys()), find_standings(incident)
    if len(events) < _AGREE or not rest or len(rest) > len(events) or len(sizes) != 1:
        return None
    inside = [one for rank in rest if (one := standings.get(rank)) and one.called.startswith("all_to_all")]
    everyone = incident.timeline.unseen == 0 or find_exits(incident).keys() >= set(incident.timeline.world)
    if len(inside) < len(rest) or len({one.place for one in inside}) > 1 or not everyone:
        return None
    in_step = all(is_in_step(rank, incident) for rank in rest)
    return UnlikeSenders(tuple(events[r] for r in sorted(events)), tuple(inside)) if in_step else None


def _is_in_a_ring(standing: Standing) -> bool:
    """In an all_reduce, its own or DDP's, which C++ makes during the backward pass."""
    in_backward = any(bare_name(f) == "_engine_run_backward" for f in standing.stack if is_python(f))
    return is_waiting_for_ranks(standing.stack) and (
        standing.called == _IN_A_RING or (in_backward and standing.called == UNKNOWN_CALL)
    )


_ENDS_ALONE = (
    "all_to_all",
    "broadcast",
    "gather",
    "scatter",
    "send",
    "recv",
    "reduce",
    "isend",
    "irecv",
    "batch_isend",
)


def _cannot_pass(incident: Incident) -> bool:
    """The program makes no call that ends on some ranks while another one is ended in it: those would be in a later call."""
    ops = incident.capture.source.ops
    return bool(ops) and not any(op.startswith(_ENDS_ALONE) for op in ops)


def _brings_sizes(standings: dict[int, Standing]) -> bool:
    return any(one.brings_sizes for one in standings.values())


def _are_alone(ended: set[int], seen: set[int], incident: Incident) -> bool:
    """All other ranks are seen in the one call, or at least both neighbours of each in the ring of all ranks."""
    world = incident.timeline.world
    if ended | seen >= set(world):
        return True
    around = {rank: (world[at - 1], world[(at + 1) % len(world)]) for at, rank in enumerate(world)}
    return all(set(around[rank]) <= seen for rank in ended)


def _nobody_else_was_ended(ended: set[int], incident: Incident) -> bool:
    exits, seen = find_exits(incident), find_standings(incident)
    return all(
        rank in seen or (rank in exits and exits[rank].signal != _ABORT)
        for rank in set(incident.timeline.world) - ended
    )


def _lengths(place: Lines, incident: Incident) -> tuple[set[int], dict[int, str]]:
    """Lengths of the messages of recorded calls from this place; and the places of all others, by length."""
    here: set[int] = set()
    elsewhere: dict[int, str] = {}
    for lines, where, lengths in _recorded(incident):
        if lines == place:
            here |= lengths
        elif where is not None:
            elsewhere |= dict.fromkeys(lengths, where)
    return here, elsewhere


def _recorded(incident: Incident) -> Iterator[tuple[Lines, str | None, frozenset[int]]]:
    """Each kind of call that dumps hold: its lines, its place in words, and the lengths of its messages."""
    tables = incident.timeline.tables
    for group in incident.timeline.groups:
        keys = {key for rank in group.traces if (track := group.track(rank)) for key in track.blocks}
        pairs = {
            pair
            for key in keys
            for pair in zip(tables.blocks[key].match.tolist(), tables.blocks[key].stack.tolist(), strict=True)
        }
        for match, stack in sorted(pairs):
            frames = tables.stacks.get(stack)
            lengths = (message_lengths(tables.signatures[match][0], size) for size in _sizes(group.group, incident))
            yield program_lines(frames), user_place(frames), frozenset[int]().union(*lengths)


def _sizes(group: ProcessGroup, incident: Incident) -> range:
    """How many members it may have: gloo's dumps do not always say."""
    known = len(group.ranks)
    return range(known, known + 1) if group.declared else range(max(known, 2), len(incident.timeline.world) + 1)
