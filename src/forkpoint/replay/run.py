"""Replay: would the recorded job have continued with a repair, and does it stop where it did without it?

Nothing records what a rank does after its last recorded call. The replay assumes that it continues as its peers expect,
unless the repair says that this is what it failed to do. A rank without a dump is assumed to reach every call unless
something blocks it.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from forkpoint.model.world import ProcessGroup
from forkpoint.replay.job import Job, Slot


class RepairKind(StrEnum):
    GO_ON = "go-on"
    """These ranks continue: their host, process or startup had failed."""
    ISSUE = "issue"
    """They issue the call that the others made, before the call in which they wait; without a group, all that they left out on the way."""
    LEAVE_OUT = "leave-out"
    """They do not make the call in which they wait: the other ranks never made it."""
    FIT = "fit"
    """They make the call with the sizes and types of the others."""
    ORDER = "order"
    """They make their calls in the others' order."""
    FINISH = "finish"
    """The call itself finishes: the GPU or the link of these ranks works."""


class Repair(Struct, frozen=True):
    """The smallest change to what ranks did with which all would have continued."""

    kind: RepairKind
    ranks: frozenset[int]
    """May be empty with FINISH and FIT: no rank is named."""
    group: ProcessGroup | None = None
    """The call's group; None: wherever these ranks are missing."""
    channel: tuple[int, int] | None = None
    seq: int | None = None
    beside: frozenset[tuple[ProcessGroup, int | None]] = frozenset()
    """Groups of the same kind in which the same decision parted ranks, and the call there: the repair is made in them, too."""


class Replay(Struct, frozen=True):
    """The result of replaying a repair."""

    stops: bool
    """Without the repair, every waiting rank stays blocked, because of what the repair changes."""
    goes_on: bool
    """With the repair, every call in which ranks wait finishes."""
    assumed: int
    """Number of ranks without a dump that must be in another blocked call."""
    unseen: int
    """Number of ranks without a dump that must be in a call that no dump shows."""
    rounds: tuple[tuple[Slot, ...], ...]
    """The calls that finish with the repair; those of a round finish together."""

    @property
    def explains(self) -> bool:
        return self.stops and self.goes_on

    @property
    def cost(self) -> tuple[int, int]:
        """Lower is better: fewer assumptions."""
        return self.unseen, self.assumed


def replay(job: Job, repair: Repair) -> Replay:
    """Runs the recorded end of the job without the repair, and with it."""
    stop = _Stop(job, repair)
    rounds = _run(job, repair)
    finished = {slot for done in rounds for slot in done}
    return Replay(
        stops=len(stop.held) == len(job.slots) and _nobody_else_idles(job, repair),
        goes_on=len(finished) == len(job.slots),
        assumed=len(stop.assumed),
        unseen=len(stop.unseen),
        rounds=rounds,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Without the repair.


class _Stop:
    """Which slots cannot finish without the repair, and what must be assumed for that.

    A slot is blocked (`held`) if a rank that it needs waits in a blocked slot. If only ranks without a dump could block it,
    one of them is assumed to be in another call: preferably a member of a blocked call's group, else any.
    """

    def __init__(self, job: Job, repair: Repair) -> None:
        self.held: set[Slot] = set()
        self.assumed: set[int] = set()
        self.unseen: set[int] = set()
        self._job = job
        self._near: set[int] = set()
        self._hold([slot for slot in job.slots if _is_cause(slot, job, repair)])
        while (rank := self._next(self._near)) is not None:
            self.assumed.add(rank)
            self._hold(job.unknown_in[rank])
        while (rank := self._next(None)) is not None:
            self.unseen.add(rank)
            self._hold(job.unknown_in[rank])

    def _hold(self, slots: Iterable[Slot]) -> None:
        """Marks these slots as blocked, and all that wait for ranks in them."""
        found = list(slots)
        while found:
            slot = found.pop()
            if slot in self.held:
                continue
            self.held.add(slot)
            self._near.update(slot.channel or slot.group.ranks)
            found += [other for rank in slot.waiting for other in self._job.needed_in.get(rank, ())]

    def _next(self, among: set[int] | None) -> int | None:
        """The rank without a dump that could block most of the slots that are not blocked yet."""
        left = (slot for slot in self._job.slots if slot not in self.held)
        missed = Counter(rank for slot in left for rank in slot.unknown | (slot.absent & self._job.elsewhere))
        fitting = [rank for rank in missed if among is None or rank in among]
        return min(fitting, key=lambda rank: (-missed[rank], rank), default=None)


def _is_cause(slot: Slot, job: Job, repair: Repair) -> bool:
    """The slot does not finish, because of what the repair changes."""
    missed = not repair.ranks.isdisjoint(slot.missing)
    match repair.kind:
        case RepairKind.GO_ON:
            return missed
        case RepairKind.ISSUE:
            return (_is_at(slot, repair) and (missed or slot.channel is not None)) or slot.misfit
        case RepairKind.LEAVE_OUT:
            return slot.waiting <= repair.ranks or slot.misfit
        case RepairKind.ORDER:
            swapped = any(rank in job.stands for rank in repair.ranks & (slot.absent | slot.busy))
            return slot.misfit or swapped or (repair.group is not None and _is_at(slot, repair))
        case RepairKind.FIT:
            return slot.misfit or _is_at(slot, repair)
        case RepairKind.FINISH:
            return not slot.missing and not slot.busy


def _nobody_else_idles(job: Job, repair: Repair) -> bool:
    """Whether only ranks that the repair changes are idle: any other idle rank would have reached the call by itself. If a call
    should have been left out, idle ranks are expected.
    """
    if repair.kind is RepairKind.LEAVE_OUT:
        return True
    if repair.kind is RepairKind.GO_ON and not repair.ranks:
        return False
    return job.free - job.elsewhere <= repair.ranks


# ---------------------------------------------------------------------------------------------------------------------
# With the repair.

_MENDS_CALLS = (RepairKind.FINISH, RepairKind.FIT)
_MENDS_MESSAGES = (*_MENDS_CALLS, RepairKind.ISSUE, RepairKind.LEAVE_OUT)
"""Repairs for a slot that all ranks seem to have reached. Messages pair by order, so one too few or too many is not visible."""


def _run(job: Job, repair: Repair) -> tuple[tuple[Slot, ...], ...]:
    finished: set[Slot] = set()
    rounds: list[tuple[Slot, ...]] = []
    while True:
        done = tuple(s for s in job.slots if s not in finished and _finishes(s, finished, job, repair))
        if not done:
            return tuple(rounds)
        rounds.append(done)
        finished.update(done)


def _finishes(slot: Slot, finished: set[Slot], job: Job, repair: Repair) -> bool:
    if repair.kind is RepairKind.LEAVE_OUT and slot.waiting <= repair.ranks:
        return True  # with the repair, nobody makes this call
    if slot.misfit and not _mends(slot, repair):
        return False
    if not slot.missing and not slot.busy and not slot.misfit:
        kinds = _MENDS_MESSAGES if slot.channel else _MENDS_CALLS
        return repair.kind in kinds and _is_at(slot, repair)
    # A rank that passed fewer elements to a call may have finished its part, and wait in a later call.
    mended = slot.misfit or (slot.channel is not None and repair.kind is RepairKind.FIT and _is_at(slot, repair))
    needed = slot.absent if mended else slot.absent | slot.busy
    return all(_comes(rank, slot, finished, job, repair) for rank in needed)


def _comes(rank: int, slot: Slot, finished: set[Slot], job: Job, repair: Repair) -> bool:
    """Whether a rank that `slot` needs reaches it. Its next call is assumed to be this one, once nothing blocks it."""
    if rank in repair.ranks and repair.kind in (RepairKind.GO_ON, RepairKind.ORDER):
        return True
    if rank in repair.ranks and repair.kind is RepairKind.ISSUE and _is_at(slot, repair):
        return True
    stand = job.stands.get(rank)
    return stand in finished if stand is not None else rank not in job.free or rank in job.elsewhere


def _mends(slot: Slot, repair: Repair) -> bool:
    return repair.kind not in (RepairKind.GO_ON, RepairKind.FINISH) and _is_at(slot, repair)


def _is_at(slot: Slot, repair: Repair) -> bool:
    """Whether the repair changes this slot. Collectives pair by number: one too few or too many moves all that follow.

    A batch of messages finishes as a whole, and one message represents it: if an end of the channel waits in any message
    of the group, it waits in the batch. Messages in ring buffers that have wrapped around have no common number.
    """
    if repair.group is None:
        return repair.kind is not RepairKind.ISSUE or not repair.ranks.isdisjoint(
            slot.waiting | slot.busy | slot.missing
        )
    since = {repair.group: repair.seq, **dict(repair.beside)}
    if slot.group not in since or (slot.channel is None) != (repair.channel is None):
        return False
    if repair.channel is not None and repair.kind is RepairKind.FINISH:
        return not slot.missing and not slot.busy  # batches that exchange messages finish together
    if repair.channel is not None:
        needs = slot.waiting | slot.busy | slot.missing
        return slot.waiting <= set(repair.channel) or not repair.ranks.isdisjoint(needs)
    first = since[slot.group]
    return first is None or slot.seq >= first
