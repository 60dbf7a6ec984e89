"""Ranks that all wait in a communication call, at different places of one program: where their call paths part, and who is odd.

Paths are compared from the outermost frame inwards: where they first differ, one side took another turn. That holds for
calls of the whole job. A rank that waits for a part of the job (a tensor-parallel peer, a pipeline stage) stands where its
peers left it, so nobody is named where the stacks show such groups.
"""

import re
from collections import Counter
from dataclasses import dataclass

from forkpoint.detectors.stalls import is_waiting_for_ranks
from forkpoint.detectors.standings import Standing, find_standings
from forkpoint.diverge.build import unrecorded_divergence
from forkpoint.ingest.live_stacks.shapes import find_last_call
from forkpoint.ingest.live_stacks.threads import ends_in_program
from forkpoint.model.divergence import Cohort, Divergence, PartingKind, Role
from forkpoint.model.frames import bare_name, is_python, short_name
from forkpoint.model.incident import Incident, fact
from forkpoint.model.op import Frame

_BARRIERS = frozenset({"barrier", "monitored_barrier"})
_MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_OF_A_PART = re.compile(
    r"tensor_parallel|pipeline|pipelining|parallel_state|megatron|mesh|expert|moe|schedules?\b|_group\b|sub_?group"
    r"|\b(?:tp|pp|dp|ep|cp)_", re.IGNORECASE
)  # fmt: skip
_LEAST = 3
"""Ranks that can outvote another."""
_Turn = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class PartedStacks:
    standings: dict[int, Standing]
    odd: tuple[int, ...]
    frame: Frame
    """Of the first odd rank, where its path leaves that of the others."""

    @property
    def cannot_misfit(self) -> bool:
        """All wait in barriers, which carry no data. A call that carries some may be finished on ranks that brought less, and
        these are then at a later one: that looks like another path.
        """
        return all(_called(one) in _BARRIERS for one in self.standings.values())

    @property
    def place(self) -> str:
        return f"{short_name(self.frame.filename)}:{self.frame.line} {self.frame.name}"

    @property
    def divergence(self) -> Divergence:
        world = tuple(sorted(self.standings))
        usual = tuple(rank for rank in world if rank not in self.odd)
        cohorts = tuple(
            Cohort(side, Role.WAITING, _called(self.standings[side[0]]), stack=self.standings[side[0]].stack)
            for side in (usual, self.odd)
        )
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


@fact
def find_parted_stacks(incident: Incident) -> PartedStacks | None:
    """None unless every rank of the job is seen, all wait for others, and most of them took the same turn."""
    standings = find_standings(incident)
    world = incident.timeline.world
    everyone = len(world) >= _LEAST and incident.timeline.unseen <= 1 and standings.keys() >= set(world)
    if not everyone or not all(_is_comparable(one) for one in standings.values()):
        return None
    paths = {rank: _path(standings[rank]) for rank in world}
    depth = next((d for d in range(min(map(len, paths.values()))) if len({p[d] for p in paths.values()}) > 1), None)
    if depth is None:
        return None
    turns = {rank: path[depth] for rank, path in paths.items()}
    usual, times = Counter(turns.values()).most_common(1)[0]
    odd = tuple(rank for rank in world if turns[rank] != usual)
    if times <= len(odd) + incident.timeline.unseen or len({turns[rank] for rank in odd}) > 1:
        return None
    frames = [f for f in reversed(standings[odd[0]].stack) if is_python(f)]
    return PartedStacks({rank: standings[rank] for rank in world}, odd, frames[depth])


def _is_comparable(standing: Standing) -> bool:
    """It waits for the whole job, and its stack is whole."""
    return is_waiting_for_ranks(standing.stack) and ends_in_program(standing.stack) and not _is_of_a_part(standing)


def _path(standing: Standing) -> list[_Turn]:
    """Outermost first."""
    return [(short_name(f.filename), bare_name(f), f.line) for f in reversed(standing.stack) if is_python(f)]


def _is_of_a_part(standing: Standing) -> bool:
    named = any(_OF_A_PART.search(f"{short_name(f.filename)} {f.name}") for f in standing.stack)
    inside = {bare_name(frame) for frame in find_last_call(standing.stack)}
    return named or bool(inside & _MESSAGES) or "group" in standing.code


def _called(standing: Standing) -> str:
    """The function of torch.distributed that it is in."""
    inside = [f for f in find_last_call(standing.stack) if f.filename.endswith("distributed_c10d.py")]
    return next((bare_name(f) for f in inside if bare_name(f) != "wrapper"), "a call")
