"""Who takes part in an agreement, the question, which is the same for all of them, and what can go wrong."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed import distributed_c10d as c10d

from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# What can go wrong when ranks agree. All are RuntimeErrors: training code need not know this package to catch them.


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that gave the same answer."""

    ranks: tuple[int, ...]
    value: str
    """Only the beginning of a long one."""


class ConsensusError(RuntimeError):
    """Ranks did not agree."""


class NoAgreement(ConsensusError):
    """Not all members came, or the collective broke. The group must not be used any more."""

    def __init__(self, message: str, absent: tuple[int, ...] | None = None) -> None:
        super().__init__(message)
        self.absent = absent
        """Global ranks that did not come. None: not known."""


class RanksDisagree(ConsensusError):
    """Raised on every member: a value that must be equal is not."""

    def __init__(self, message: str, sides: tuple[Side, ...] = (), odd: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.sides = sides
        """Who has which value, the largest side first."""
        self.odd = odd
        """Ranks that differ from more than half of the members. Empty if no value has such a majority."""


class PeerFailed(ConsensusError):
    """Raised on the other members when a rank failed, so that none goes on alone."""

    def __init__(self, message: str, failed: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class NotAMember(RuntimeError):
    """This rank is not in the group it was given."""


class CollectiveInRankZero(RuntimeError):
    """A collective in code that one rank runs alone. It was refused before it was issued."""


def settle(error: BaseException, ranks: tuple[int, ...]) -> None:
    """Notes that these ranks know of the error or cannot be reached, so it is not sent to them again.

    The note is kept on the exception itself, where it lives exactly as long as it matters.
    """
    vars(error)["_forkpoint_settled"] = frozenset(ranks)


def is_settled(error: BaseException, ranks: tuple[int, ...]) -> bool:
    """Also if an exception that it was raised from is settled."""
    seen: BaseException | None = error
    while seen is not None:
        if frozenset(ranks) <= vars(seen).get("_forkpoint_settled", frozenset()):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


_MAX_SIDES = 8
"""Sides spelled out in a message."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """What one member answered, after a failure or disagreement."""

    rank: int
    failed: bool
    question: int
    """Digest of the whole text, which may be shortened below."""
    asked: str
    value: int
    """Likewise."""
    said: str


def disagreement(what: str, said: Iterable[tuple[int, int, str]]) -> RanksDisagree:
    """From (rank, digest, text) of every member. Ranks are odd if they differ from more than half of all."""
    ranks: defaultdict[int, list[int]] = defaultdict(list)
    texts: dict[int, str] = {}
    for rank, value, text in said:
        ranks[value].append(rank)
        texts[value] = text
    order = sorted(ranks, key=lambda value: (-len(ranks[value]), ranks[value]))
    sides = tuple(Side(tuple(ranks[value]), texts[value]) for value in order)
    members = sum(len(side.ranks) for side in sides)
    has_majority = 2 * len(sides[0].ranks) > members
    odd = tuple(sorted(rank for side in sides[1:] for rank in side.ranks)) if has_majority else ()
    return RanksDisagree(_message(what, sides, odd), sides, odd)


def _message(what: str, sides: tuple[Side, ...], odd: tuple[int, ...]) -> str:
    # The odd ones first: they are what the reader looks for.
    shown = [*sides[1:_MAX_SIDES], sides[0]] if odd else list(sides[:_MAX_SIDES])
    said = "; ".join(f"{name_ranks(side.ranks)}: {side.value}" for side in shown)
    more = f"; and {len(sides) - len(shown)} more values" if len(sides) > len(shown) else ""
    cut = " (equal as far as shown)" if len({side.value for side in sides}) < len(sides) else ""
    who = f"{name_ranks(odd)} differ{'s' if len(odd) == 1 else ''} from the majority" if odd else "no majority"
    return f"ranks disagree on {what}, {who}: {said}{more}{cut}"


@dataclass(frozen=True, slots=True)
class Members:
    """Who takes part in an agreement, and where its tensors live."""

    group: dist.ProcessGroup | None
    """None: torch.distributed is not initialised, a world of one."""

    @property
    def rank(self) -> int:
        """Global number of this process."""
        return 0 if self.group is None else dist.get_rank()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global, in the group's order."""
        return (0,) if self.group is None else tuple(dist.get_process_group_ranks(self.group))

    @property
    def size(self) -> int:
        return 1 if self.group is None else self.group.size()

    @property
    def device(self) -> torch.device:
        """CPU if the group supports it: a decision on the GPU makes the host wait for everything queued there."""
        assert self.group is not None
        kinds = device_kinds(self.group)
        if not kinds or "cpu" in kinds:
            return torch.device("cpu")
        bound = self.group.bound_device_id
        return bound or torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


def members_of(group: dist.ProcessGroup | None) -> Members:
    if not dist.is_initialized():
        return Members(None)
    if group is not None and is_outsider(group):
        raise NotAMember(
            f"rank {dist.get_rank()} is not in this group, so it cannot agree with it: "
            "`new_group` gave it no group; only members may call this"
        )
    return Members(group or dist.group.WORLD)


TIMEOUT_S = 300.0
"""Half of NCCL's own 600 s. Longer than a checkpoint or an evaluation on one rank should take, and early enough that the
error that names ranks comes before the watchdog, which ends the process without naming any."""

_issued: WeakKeyDictionary[dist.ProcessGroup, int] = WeakKeyDictionary()
"""The only thing kept between calls: how many collectives this package has issued in each group."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is agreed on: the same for all members."""

    kind: str
    """The function that asks."""
    what: str | None
    """What is being agreed on, in the user's words."""
    members: Members
    timeout_s: float
    number: int
    """Its place among the group's agreements."""

    def __str__(self) -> str:
        return f"{self.what!r} ({self.kind})" if self.what else self.kind

    @property
    def label(self) -> str:
        """If it differs between members, they are not at the same place in the program."""
        return f"agreement {self.number}, {self}"


def question(kind: str, what: str | None, group: dist.ProcessGroup | None, timeout_s: float) -> Question:
    members = members_of(group)
    return Question(kind, what, members, timeout_s, 1 + issued(members.group))


def count(group: dist.ProcessGroup) -> None:
    _issued[group] = issued(group) + 1


def issued(group: dist.ProcessGroup | None) -> int:
    return 0 if group is None else _issued.get(group, 0)


# ---------------------------------------------------------------------------------------------------------------------
# The private parts of torch that this package uses, in one place. Tested with 2.11 and 2.13.

Given = ParamSpec("Given")
Result = TypeVar("Result")

_NOT_COLLECTIVE = frozenset(
    {"send", "recv_", "recv_any_source_", "isend", "irecv", "batch_p2p_ops", "get_remote_tensors"}
)
"""Ops that take a group but are not collectives: a message concerns only two ranks."""


def outside_graphs(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Breaks the graph here: dynamo would fail at ProcessGroup.allreduce."""
    outside: Any = torch.compiler.disable(function)
    return outside


def device_kinds(group: dist.ProcessGroup) -> list[str]:
    return [device.type for device in group._device_types]  # noqa: SLF001 - get_backend_config says the same as text


def is_outsider(group: object) -> bool:
    """What `new_group` returns on ranks that are not in the new group."""
    return group == dist.GroupMember.NON_GROUP_MEMBER


def sum_options(timeout: timedelta) -> dist.AllreduceOptions:
    options: Any = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    options.timeout = timeout
    return options


def gather_options(timeout: timedelta) -> Any:
    options: Any = c10d.AllgatherOptions()
    options.timeout = timeout
    return options


def groups() -> Iterable[dist.ProcessGroup]:
    """Every group that this process is in."""
    return tuple(c10d._world.pg_map)  # noqa: SLF001 - there is no public list


def sequence_number(group: Any) -> int | None:
    """How many collectives the group has issued. None: its backend does not count."""
    try:
        return group._get_sequence_number_for_group()  # noqa: SLF001 - there is no public counter
    except RuntimeError:
        return None


@cache
def group_argument(op: Any) -> tuple[int, str] | None:
    """Where an op that is a collective takes its group: (position, name)."""
    if not isinstance(op, OpOverload) or op._opname in _NOT_COLLECTIVE:  # noqa: SLF001 - an op says its name nowhere else
        return None
    names = [argument.name for argument in op._schema.arguments]  # noqa: SLF001 - nor its arguments
    found = [name for name in names if name in {"process_group", "group_name"}]
    return (names.index(found[0]), found[0]) if found else None


def group_of(value: Any) -> dist.ProcessGroup:
    """From what ops take as a group: a name, a group, or a boxed group."""
    if isinstance(value, str):
        resolve: Any = c10d._resolve_process_group  # noqa: SLF001 - only there
        return resolve(value)
    return value if isinstance(value, dist.ProcessGroup) else dist.ProcessGroup.unbox(value)
