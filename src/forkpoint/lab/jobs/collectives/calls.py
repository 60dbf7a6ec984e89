"""The collectives as torch calls, on buffers that are filled, compared bit by bit, and damaged on purpose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

# ---------------------------------------------------------------------------------------------------------------------
# What ranks send, and what must come back, bit for bit.
#
# All values are small integers, so that every sum is exact in every type, whatever its order: bfloat16 counts to 256.
# The period of the patterns is prime, so a chunk that arrives in the wrong place has wrong values there.


Values = NDArray[np.int64]

_PERIOD = 199
"""Prime, and all values below it fit into eight bits."""
_PER_MEMBER, _PER_SEED, _PER_PART = 37, 101, 61
_MOST_ADDENDS = 80
"""Each is at most 3, so the largest sum is 240."""
_EIGHT = 8
"""Fewer than this many factors of two fit into eight bits."""
POISON = 251
"""Fills output buffers before the call: no pattern and no result has this value."""


def moved(member: int, count: int, *, seed: int, part: int = 0, start: int = 0) -> Values:
    """What a member sends, or its part for one other member, from element `start` on."""
    index = np.arange(start, start + count, dtype=np.int64)
    return (index + _PER_MEMBER * member + _PER_PART * part + _PER_SEED * seed) % _PERIOD


def as_bits(values: Values) -> Values:
    """For booleans: one bit of each value, mixed so that neighbours are independent."""
    return (values * 0x9E37 >> 7) & 1


def addend(member: int, members: int, count: int, *, seed: int, start: int = 0) -> Values:
    """In a large group about 80 members contribute to each element, in turns."""
    index = np.arange(start, start + count, dtype=np.int64)
    values = moved(member, count, seed=seed, start=start) % 4
    turns = -(-members // _MOST_ADDENDS)
    return np.where((index + member) % turns == 0, values, 0)


def factor(member: int, members: int, count: int, *, seed: int) -> Values:
    index = np.arange(count, dtype=np.int64) + seed
    return np.where((index + member) % max(members, _EIGHT) < index % _EIGHT, 2, 1)


def total(members: int, count: int, *, seed: int, start: int = 0) -> Values:
    return sum(
        (addend(m, members, count, seed=seed, start=start) for m in range(members)), start=np.zeros(count, np.int64)
    )


def product(members: int, count: int, *, seed: int) -> Values:
    result = np.ones(count, np.int64)
    for member in range(members):
        result *= factor(member, members, count, seed=seed)
    return result


def extreme(members: int, count: int, *, seed: int, largest: bool) -> Values:
    choose = np.maximum if largest else np.minimum
    result = moved(0, count, seed=seed)
    for member in range(1, members):
        result = choose(result, moved(member, count, seed=seed))
    return result


def uneven_split(sender: int, receiver: int, members: int, chunk: int) -> int:
    """Elements from one member to another: differs between pairs, about `chunk` times `members` in total."""
    return max(chunk + (sender * 3 + receiver * 5) % members - members // 2, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Patterns as tensors, and their comparison.


@dataclass(frozen=True, slots=True)
class Buffers:
    """Type and device of the tensors of one test."""

    dtype: torch.dtype
    device: torch.device

    def of(self, values: Values) -> Tensor:
        held = as_bits(values) if self.dtype is torch.bool else values
        return torch.from_numpy(held).to(self.dtype).to(self.device)

    def poisoned(self, expected: Tensor) -> Tensor:
        """An output buffer that is wrong in every element."""
        return ~expected if self.dtype is torch.bool else torch.full_like(expected, POISON)


@dataclass(frozen=True, slots=True)
class WrongData:
    element: int
    wrong: int
    expected: str
    got: str


def compare(got: Tensor, expected: Tensor) -> WrongData | None:
    """By their bytes: -0.0 differs from 0.0, and equal NaNs are equal."""
    if not got.numel() or torch.equal(got.view(torch.uint8), expected.view(torch.uint8)):
        return None
    size = got.element_size()
    odd = (got.view(torch.uint8) != expected.view(torch.uint8)).view(-1, size).any(dim=1).nonzero().flatten()
    at = int(odd[0])
    return WrongData(at, len(odd), str(expected[at].item()), str(got[at].item()))


def flip_bit(tensor: Tensor) -> None:
    """The lowest bit of the element in the middle."""
    at = tensor.numel() // 2 * tensor.element_size()
    tensor.view(torch.uint8)[at] ^= 1


def lose_last(tensor: Tensor, before: Tensor) -> None:
    tensor[-1:] = before[-1:]


# ---------------------------------------------------------------------------------------------------------------------
# Each collective with its input pattern and the expected output.

# Torch 2.13 renamed two collectives that users still call by the old name.


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's place in the group that is tested."""

    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    me: int
    """The number inside the group."""

    @property
    def count(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    run: Callable[[], object]
    outputs: tuple[Tensor, ...]
    expected: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Make:
    """Everything a collective's buffers depend on."""

    member: Member
    elements: int
    seed: int
    buffers: Buffers

    def sent(self, who: int, part: int = 0, count: int | None = None) -> Values:
        return moved(who, self.elements if count is None else count, seed=self.seed, part=part)

    @property
    def root(self) -> int:
        """The first member, then the last."""
        return 0 if self.seed % 2 == 0 else self.member.count - 1

    @property
    def root_rank(self) -> int:
        return self.member.ranks[self.root]

    def result(self, values: Values) -> tuple[Tensor, Tensor]:
        expected = self.buffers.of(values)
        return self.buffers.poisoned(expected), expected

    def results(self, values: Sequence[Values]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        made = [self.result(one) for one in values]
        return tuple(out for out, _ in made), tuple(expected for _, expected in made)


_OPS = {
    "sum": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


def _reduced(make: Make, op: str) -> tuple[Values, Values]:
    """What this member puts in, and what comes out."""
    me, n, count, seed = make.member.me, make.member.count, make.elements, make.seed
    if op == "sum":
        return addend(me, n, count, seed=seed), total(n, count, seed=seed)
    if op == "product":
        return factor(me, n, count, seed=seed), product(n, count, seed=seed)
    return make.sent(me), extreme(n, count, seed=seed, largest=op == "max")


def _all_reduce(op: str) -> Callable[[Make], CollectiveCall]:
    def make_call(make: Make) -> CollectiveCall:
        put, comes = _reduced(make, op)
        held, expected = make.buffers.of(put), make.buffers.of(comes)
        return CollectiveCall(lambda: dist.all_reduce(held, _OPS[op], make.member.group), (held,), (expected,))

    return make_call


def _reduce(make: Make) -> CollectiveCall:
    put, comes = _reduced(make, "sum")
    held = make.buffers.of(put)
    checked = (held,) if make.member.me == make.root else ()
    expected = (make.buffers.of(comes),) if checked else ()
    return CollectiveCall(lambda: dist.reduce(held, group=make.member.group, dst=make.root_rank), checked, expected)


def _broadcast(make: Make) -> CollectiveCall:
    out, expected = make.result(make.sent(make.root))
    held = expected.clone() if make.member.me == make.root else out
    return CollectiveCall(
        lambda: dist.broadcast(held, group=make.member.group, src=make.root_rank), (held,), (expected,)
    )


def _all_gather(make: Make) -> CollectiveCall:
    mine = make.buffers.of(make.sent(make.member.me))
    outs, expected = make.results([make.sent(who) for who in range(make.member.count)])
    return CollectiveCall(lambda: dist.all_gather(list(outs), mine, make.member.group), outs, expected)


def _all_gather_into_tensor(make: Make) -> CollectiveCall:
    mine = make.buffers.of(make.sent(make.member.me))
    out, expected = make.result(_joined([make.sent(who) for who in range(make.member.count)]))
    # pyrefly: ignore[deprecated] - as said above
    return CollectiveCall(lambda: dist.all_gather_into_tensor(out, mine, make.member.group), (out,), (expected,))


def _scattered(make: Make) -> tuple[list[Values], Values]:
    """One part for each member, and the sum of the parts for this one."""
    me, n, count = make.member.me, make.member.count, make.elements
    parts = [addend(me, n, count, seed=make.seed, start=count * to) for to in range(n)]
    return parts, total(n, count, seed=make.seed, start=count * me)


def _reduce_scatter(make: Make) -> CollectiveCall:
    parts, comes = _scattered(make)
    inputs = [make.buffers.of(part) for part in parts]
    out, expected = make.result(comes)
    return CollectiveCall(lambda: dist.reduce_scatter(out, inputs, group=make.member.group), (out,), (expected,))


def _reduce_scatter_tensor(make: Make) -> CollectiveCall:
    parts, comes = _scattered(make)
    whole = make.buffers.of(_joined(parts))
    out, expected = make.result(comes)
    # pyrefly: ignore[deprecated] - as said above
    return CollectiveCall(lambda: dist.reduce_scatter_tensor(out, whole, group=make.member.group), (out,), (expected,))


def _all_to_all(make: Make) -> CollectiveCall:
    me, n = make.member.me, make.member.count
    inputs = [make.buffers.of(make.sent(me, part=to)) for to in range(n)]
    outs, expected = make.results([make.sent(who, part=me) for who in range(n)])
    return CollectiveCall(lambda: dist.all_to_all(list(outs), inputs, make.member.group), outs, expected)


def _all_to_all_single(make: Make) -> CollectiveCall:
    me, n = make.member.me, make.member.count
    put = make.buffers.of(_joined([make.sent(me, part=to) for to in range(n)]))
    out, expected = make.result(_joined([make.sent(who, part=me) for who in range(n)]))
    return CollectiveCall(lambda: dist.all_to_all_single(out, put, group=make.member.group), (out,), (expected,))


def _all_to_all_single_uneven(make: Make) -> CollectiveCall:
    me, n = make.member.me, make.member.count
    sends = [uneven_split(me, to, n, make.elements) for to in range(n)]
    takes = [uneven_split(who, me, n, make.elements) for who in range(n)]
    put = make.buffers.of(_joined([make.sent(me, to, sends[to]) for to in range(n)]))
    out, expected = make.result(_joined([make.sent(who, me, takes[who]) for who in range(n)]))

    def run() -> object:
        return dist.all_to_all_single(out, put, takes, sends, group=make.member.group)

    return CollectiveCall(run, (out,), (expected,))


def _gather(make: Make) -> CollectiveCall:
    mine = make.buffers.of(make.sent(make.member.me))
    if make.member.me != make.root:
        return CollectiveCall(lambda: dist.gather(mine, group=make.member.group, dst=make.root_rank), (), ())
    outs, expected = make.results([make.sent(who) for who in range(make.member.count)])
    return CollectiveCall(
        lambda: dist.gather(mine, list(outs), group=make.member.group, dst=make.root_rank), outs, expected
    )


def _scatter(make: Make) -> CollectiveCall:
    out, expected = make.result(make.sent(make.root, part=make.member.me))
    parts = [make.buffers.of(make.sent(make.root, part=to)) for to in range(make.member.count)]
    given = parts if make.member.me == make.root else None
    return CollectiveCall(
        lambda: dist.scatter(out, given, group=make.member.group, src=make.root_rank), (out,), (expected,)
    )


def _around(make: Make) -> tuple[int, int]:
    """The members after and before this one, in a ring."""
    return (make.member.me + 1) % make.member.count, (make.member.me - 1) % make.member.count


def _ring(make: Make) -> tuple[Tensor, Tensor, Tensor]:
    """What is sent, the output buffer, and its expected content."""
    return make.buffers.of(make.sent(make.member.me)), *make.result(make.sent(_around(make)[1]))


def _send_recv(make: Make) -> CollectiveCall:
    after, before = (make.member.ranks[who] for who in _around(make))
    mine, out, expected = _ring(make)

    def run() -> None:
        """Even members send first, so that a blocking send meets its receiver."""
        if make.member.me % 2 == 0:
            dist.send(mine, after, make.member.group)
        dist.recv(out, before, make.member.group)
        if make.member.me % 2:
            dist.send(mine, after, make.member.group)

    return CollectiveCall(run, (out,), (expected,))


def _batch_isend_irecv(make: Make) -> CollectiveCall:
    after, before = (make.member.ranks[who] for who in _around(make))
    mine, out, expected = _ring(make)
    return CollectiveCall(lambda: exchange(mine, after, out, before, make.member.group), (out,), (expected,))


def exchange(mine: Tensor, to: int, out: Tensor, source: int, group: dist.ProcessGroup) -> None:
    """Send and receive at once; ranks are global."""
    messages = [dist.P2POp(dist.isend, mine, to, group), dist.P2POp(dist.irecv, out, source, group)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()


def _barrier(make: Make) -> CollectiveCall:
    return CollectiveCall(lambda: dist.barrier(make.member.group), (), ())


def _joined(parts: Sequence[Values]) -> Values:
    return np.concatenate(parts)


CALLS: dict[str, Callable[[Make], CollectiveCall]] = {
    "all_reduce_sum": _all_reduce("sum"),
    "all_reduce_max": _all_reduce("max"),
    "all_reduce_min": _all_reduce("min"),
    "all_reduce_product": _all_reduce("product"),
    "broadcast": _broadcast,
    "reduce_sum": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_single_uneven": _all_to_all_single_uneven,
    "gather": _gather,
    "scatter": _scatter,
    "send_recv": _send_recv,
    "batch_isend_irecv": _batch_isend_irecv,
    "barrier": _barrier,
}
