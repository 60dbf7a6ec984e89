"""Faults that one rank of a job has, planted at random, and what an exact answer to each is."""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from bench.scale.blocked import Reach, run_until_blocked
from bench.scale.mesh import Kind, Mesh, Place
from bench.scale.program import Batch, Call, Message, Unit, frame, leaf, one_step

STEPS_BEFORE = 300
"""Trained before the fault, so that every ring buffer has wrapped."""
STEPS_AFTER = 3
"""Simulated: nobody comes further, as all meet at the end of a step."""
MAX_AHEAD = 64
_TIMED = 0.25
"""Share of jobs that record start events."""


class FaultKind(StrEnum):
    SKIP = "skip"
    EXTRA = "extra"
    TYPE = "type"
    SIZE = "size"
    DTYPE = "dtype"
    ORDER = "order"
    NO_SEND = "no-send"
    NO_RECV = "no-recv"
    MESSAGE_SIZE = "message-size"
    STALL = "stall"
    LOST = "lost"


_P2P = (FaultKind.NO_SEND, FaultKind.NO_RECV, FaultKind.MESSAGE_SIZE)
DRAWN = (
    (FaultKind.SKIP,), (FaultKind.EXTRA,), (FaultKind.TYPE,), (FaultKind.SIZE,), (FaultKind.DTYPE,), (FaultKind.ORDER,),
    _P2P, (FaultKind.STALL,), (FaultKind.LOST,),
)  # fmt: skip
"""One of each in turn; where there are several, one of them by chance."""

CAUSES = {
    FaultKind.SKIP: frozenset({"divergent-path"}),
    FaultKind.EXTRA: frozenset({"divergent-path"}),
    FaultKind.TYPE: frozenset({"divergent-path"}),
    FaultKind.SIZE: frozenset({"metadata-mismatch"}),
    FaultKind.DTYPE: frozenset({"metadata-mismatch"}),
    FaultKind.ORDER: frozenset({"order-inversion"}),
    FaultKind.NO_SEND: frozenset({"divergent-path"}),
    FaultKind.NO_RECV: frozenset({"divergent-path"}),
    FaultKind.MESSAGE_SIZE: frozenset({"metadata-mismatch"}),
    FaultKind.STALL: frozenset({"host-stall"}),
    FaultKind.LOST: frozenset({"rank-lost", "inconclusive"}),
}
"""Without logs nothing tells a rank that died from one whose dump was not collected: `inconclusive` is then exact if it
names this rank as the one that is not known."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where ranks part: a group's collective, or a channel of a pipeline (then `seq` is 0)."""

    kind: Kind
    seq: int
    channel: tuple[int, int] | None = None
    """(source, destination) as global ranks."""


@dataclass(frozen=True)
class World:
    """A job with one fault, run until it hangs."""

    mesh: Mesh
    kind: FaultKind
    rank: int
    ahead: int
    """How many units hosts run ahead of their GPU."""
    timed: bool
    """Start events were recorded."""
    slots: frozenset[Slot]
    """Where the fault is: an exact answer names one of them."""
    causes: frozenset[str]
    """Exact answers."""
    programs: dict[Place, tuple[Unit, ...]]
    """From the step of the fault on."""
    reach: dict[Place, Reach]

    def place(self, rank: int) -> Place:
        return self.mesh.place(rank, self.rank)


def one_world(ranks: int, kind: FaultKind, seed: int) -> World:
    """The same one for all who ask."""
    return plant(Mesh.of(ranks), kind, random.Random(seed))


def plant(mesh: Mesh, kind: FaultKind, chance: random.Random) -> World:
    """A fault of this kind at a random rank and place of the step. One that does not hang the job is drawn again."""
    while True:
        rank = chance.randrange(mesh.ranks)
        ahead = chance.choice((0, 1, 4, 16, MAX_AHEAD))
        usual = one_step(mesh, mesh.stage(rank)) * STEPS_AFTER
        length = len(usual) // STEPS_AFTER
        edit = _edit(kind, usual, chance.randrange(length), chance)
        if edit is None:
            continue
        programs = {place: one_step(mesh, place.stage) * STEPS_AFTER for place in mesh.places()}
        programs[mesh.place(rank, rank)] = edit.units
        reach = run_until_blocked(mesh, programs, ahead)
        if max(r.done for r in reach.values()) < 2 * length and min(r.done for r in reach.values()) < length:
            slots = frozenset(s for n in edit.touched for s in _slots(mesh, rank, usual, n, edit))
            causes = _causes(kind, edit, reach[mesh.place(rank, rank)])
            return World(mesh, kind, rank, ahead, chance.random() < _TIMED, slots, causes, programs, reach)


def _causes(kind: FaultKind, edit: "_Edit", reach: Reach) -> frozenset[str]:
    """A rank that stands in the first of two calls in the wrong order, and whose host waits there, has not issued the
    second: to all that is recorded it may just as well have skipped it.
    """
    unseen = kind is FaultKind.ORDER and reach.issued <= edit.touched[-1]
    return CAUSES[kind] | CAUSES[FaultKind.SKIP] if unseen else CAUSES[kind]


@dataclass(frozen=True, slots=True)
class _Edit:
    units: tuple[Unit, ...]
    """What the faulty rank issues."""
    touched: tuple[int, ...]
    """Units of the usual program in which the fault is."""
    message: Message | None = None
    """Of a batch: the only one that is touched."""
    again: bool = False
    """The touched unit was issued once more: the fault is in the slot after it."""


def _edit(kind: FaultKind, usual: tuple[Unit, ...], at: int, chance: random.Random) -> _Edit | None:
    """None: this unit cannot have this fault."""
    unit = usual[at]
    if kind in (FaultKind.STALL, FaultKind.LOST):
        return _Edit(usual[:at], (at,))
    if kind in _P2P:
        return _edited_batch(kind, usual, at, chance)
    if isinstance(unit, Batch):
        return None
    if kind is FaultKind.ORDER:
        return _swapped(usual, at)
    instead = _edit_call(kind, unit, chance)
    # The second of two equal calls is the one too many.
    return _Edit((*usual[:at], *instead, *usual[at + 1 :]), (at,), again=instead == (unit, unit))


def _edit_call(kind: FaultKind, call: Call, chance: random.Random) -> tuple[Unit, ...]:
    match kind:
        case FaultKind.SKIP:
            return ()
        case FaultKind.EXTRA:
            stack = (*leaf("all_reduce"), frame("log_on_one_rank", "/srv/hooks.py", 31), *call.stack[-6:])
            logging = Call(call.kind, "nccl:all_reduce", (3,), (3,), "Float", stack)
            return chance.choice((logging, call)), call
        case FaultKind.TYPE:
            op = chance.choice([o for o in ("all_reduce", "_all_gather_base", "all_to_all") if o not in call.name])
            other_line = (frame("other_branch", "/srv/hooks.py", 77),) if chance.random() < 0.5 else ()
            return (replace(call, name=f"nccl:{op}", stack=(*leaf(op), *other_line, *call.stack[2:])),)
        case FaultKind.SIZE if call.name.endswith("all_to_all"):
            return (replace(call, input_size=_larger(call.input_size)),)  # what it receives depends on the others
        case FaultKind.SIZE:
            return (replace(call, input_size=_larger(call.input_size), output_size=_larger(call.output_size)),)
        case _:
            return (replace(call, dtype="Half" if call.dtype != "Half" else "Float"),)


def _larger(size: tuple[int, ...]) -> tuple[int, ...]:
    return (size[0] + 1, *size[1:])


def _edited_batch(kind: FaultKind, usual: tuple[Unit, ...], at: int, chance: random.Random) -> _Edit | None:
    batch = usual[at]
    any_side = kind is FaultKind.MESSAGE_SIZE
    messages = batch.messages if isinstance(batch, Batch) else ()
    fitting = [m for m in messages if any_side or m.is_send == (kind is FaultKind.NO_SEND)]
    if not fitting or not isinstance(batch, Batch):
        return None
    chosen = chance.choice(fitting)
    other = (replace(chosen, size=_larger(chosen.size)),) if any_side else ()
    left = tuple(part for m in messages for part in (other if m is chosen else (m,)))
    instead = (replace(batch, messages=left),) if left else ()
    return _Edit((*usual[:at], *instead, *usual[at + 1 :]), (at,), chosen)


def _swapped(usual: tuple[Unit, ...], at: int) -> _Edit | None:
    """With the next collective of another group: orders across groups."""
    call, other = usual[at], usual[at + 1]
    if not isinstance(call, Call) or not isinstance(other, Call) or call.kind == other.kind:
        return None
    return _Edit((*usual[:at], other, call, *usual[at + 2 :]), (at, at + 1))


def _slots(mesh: Mesh, rank: int, usual: tuple[Unit, ...], at: int, edit: _Edit) -> list[Slot]:
    unit = usual[at]
    if isinstance(unit, Batch):
        touched = unit.messages if edit.message is None else (edit.message,)
        return [Slot(Kind.PP, 0, _global(mesh, rank, m)) for m in touched]
    per_step = sum(isinstance(u, Call) and u.kind == unit.kind for u in usual) // STEPS_AFTER
    position = sum(isinstance(u, Call) and u.kind == unit.kind for u in usual[: at + 1])
    return [Slot(unit.kind, STEPS_BEFORE * per_step + position + edit.again)]


def _global(mesh: Mesh, rank: int, message: Message) -> tuple[int, int]:
    return mesh.at_stage(rank, message.source), mesh.at_stage(rank, message.destination)
