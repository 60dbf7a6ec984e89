"""How far everyone comes: a job with a fault runs on until all that can be done is done.

A GPU works through its rank's units in the order of issue. A collective is done when every member has come to it with
a call that fits; a batch of messages when the other end of each has come to it with one that fits. Calls that do not
fit hang, as in NCCL. The host runs some units ahead of its GPU.

Ranks of one place do the same, so places are simulated, whatever the number of ranks.
"""

from collections import Counter
from dataclasses import dataclass

from bench.scale.mesh import Kind, Mesh, Place
from bench.scale.program import Call, Message, Unit

_Order = tuple[Kind, object]
_Slot = tuple[Kind, object, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """Counted in units since the simulation began."""

    done: int
    issued: int


def run_until_blocked(mesh: Mesh, programs: dict[Place, tuple[Unit, ...]], ahead: int) -> dict[Place, Reach]:
    """`programs`: all that each place would issue; who stops by itself has a program that ends there."""
    slots = {place: _slots(place, units) for place, units in programs.items()}
    wanted = _places_in_slot(mesh)
    came: dict[_Slot, dict[Place, object]] = {}
    at = dict.fromkeys(programs, 0)
    changed = True
    while changed:
        changed = False
        for place, mine in slots.items():
            while at[place] < len(mine):
                for slot, token in mine[at[place]]:
                    came.setdefault(slot, {})[place] = token
                if not all(_is_done(came[slot], wanted[slot[0]]) for slot, _ in mine[at[place]]):
                    break
                at[place] += 1
                changed = True
    return {place: Reach(done, min(done + 1 + ahead, len(programs[place]))) for place, done in at.items()}


def _is_done(came: dict[Place, object], wanted: int) -> bool:
    return len(came) == wanted and len(set(came.values())) == 1


def _slots(place: Place, units: tuple[Unit, ...]) -> list[list[tuple[_Slot, object]]]:
    """Per unit: the slots that must be done for it, and what this place brings to each."""
    count: Counter[_Order] = Counter()
    found: list[list[tuple[_Slot, object]]] = []
    for unit in units:
        parts = (unit,) if isinstance(unit, Call) else unit.messages
        needed: list[tuple[_Slot, object]] = []
        for part in parts:
            order = _order(place, part)
            count[order] += 1
            needed.append(((*order, count[order]), _token(part)))
        found.append(needed)
    return found


def _order(place: Place, part: Call | Message) -> _Order:
    """The group's collectives, or the channel. Places that share it meet in it."""
    stage, tp, ep, dp = place
    if isinstance(part, Message):
        return Kind.PP, (part.channel, tp, ep, dp)
    lines = {
        Kind.WORLD: (),
        Kind.TP: (stage, ep, dp),
        Kind.PP: (tp, ep, dp),
        Kind.DP: (stage, tp),
        Kind.EP: (stage, tp, dp),
    }
    return part.kind, lines[part.kind]


def _token(part: Call | Message) -> object:
    if isinstance(part, Message):
        return part.size, part.dtype
    return part.name, part.input_size, part.output_size, part.dtype


def _places_in_slot(mesh: Mesh) -> dict[Kind, int]:
    """How many places meet in a slot of each kind; a message has two ends."""
    places = mesh.places()
    return {
        Kind.WORLD: len(places),
        Kind.TP: len({p.same_tp for p in places}),
        Kind.PP: 2,
        Kind.DP: len({(p.same_ep, p.same_dp) for p in places}),
        Kind.EP: len({p.same_ep for p in places}),
    }
