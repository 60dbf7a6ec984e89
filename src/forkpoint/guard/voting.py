"""A vote before every collective, for a debugging run: no rank issues a call before all have announced the same one.

    with forkpoint.guard.vote():
        train()

It finds what no recorder shows (a root, a split) at the call itself, and costs a round trip to the store per collective:
milliseconds, like TORCH_DISTRIBUTED_DEBUG=DETAIL, but outside the job's communicators. It sees what
the thread that opened it runs, including DDP's reducer and FSDP.
"""

import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import torch
import torch.distributed as dist

from forkpoint.consensus.refuse import EachCollective
from forkpoint.guard.messages import Blind, GuardStore, connect_guards
from forkpoint.model.op import SIZES_FREE
from forkpoint.model.world import name_ranks

_EVERY_S: Final = 0.002
_PARTING_S: Final = 5.0
_UNSAID: Final = frozenset({"timeout", "async_op", "asyncOp", "process_group", "group_name"})
"""Arguments that may differ, or say nothing."""
_OWN_SIZES: Final = SIZES_FREE | {"alltoall", "alltoall_base"}


class RanksDiffer(RuntimeError):
    """Raised before the call on every rank that voted; its text says who wanted what."""


@contextmanager
def vote(timeout_s: float = 60.0) -> Generator[None]:
    """`timeout_s`: for the other members to reach the same call. Debugging runs are slow; hangs are longer."""
    rank = dist.get_rank()
    with _Vote(rank, connect_guards(rank, _SESSION, time.monotonic() + timeout_s), timeout_s):
        yield


_SESSION: Final = -1
"""Keeps votes apart from the messages of the guard's thread."""


class _Vote(EachCollective):
    def __init__(self, rank: int, guard_store: GuardStore, timeout_s: float) -> None:
        super().__init__()
        self._rank = rank
        self._guard_store = guard_store
        self._timeout_s = timeout_s
        self._votes: Counter[str] = Counter()

    def before(self, op: Any, group: dist.ProcessGroup, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._agree(group, _describe(op, args, kwargs))

    def _agree(self, group: dist.ProcessGroup, wanted: str) -> None:
        members = dist.get_process_group_ranks(group)
        self._votes[group.group_name] += 1
        place = f"vote/{group.group_name}/{self._votes[group.group_name]}"
        self._guard_store.publish(f"{place}/{self._rank}", wanted.encode())
        said = self._wait(place, members, self._timeout_s)
        if len(set(said.values())) > 1 or len(said) < len(members):
            # The rank that serves the store may end now: first all others must have read the votes.
            with suppress(Blind):
                self._guard_store.publish(f"{place}/seen/{self._rank}", b"")
                self._wait(f"{place}/seen", list(said), _PARTING_S)
            raise RanksDiffer(_tell(said, members, self._timeout_s))

    def _wait(self, place: str, members: Sequence[int], timeout_s: float) -> dict[int, str]:
        until = time.monotonic() + timeout_s
        while True:
            heard = self._guard_store.read([f"{place}/{rank}" for rank in members])
            said = {
                rank: data.decode("utf-8", "replace")
                for rank, data in zip(members, heard, strict=True)
                if data is not None
            }
            if len(said) == len(members) or time.monotonic() > until:
                return said
            time.sleep(_EVERY_S)


def _describe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The call without what may differ: its name, and its arguments by name."""
    names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001 an op says its arguments nowhere else
    given = dict(zip(names, args, strict=False)) | kwargs
    name = str(func).removesuffix(".default").rpartition("::")[2].rpartition(".")[2].rstrip("_")
    told = {"root_rank"} if name in _OWN_SIZES else given.keys() - _UNSAID
    parts = [f"{key}={said}" for key, value in given.items() if key in told and (said := _say(value))]
    return f"{name}({', '.join(parts)})"


def _say(value: object) -> str:
    match value:
        case torch.Tensor():
            return f"{str(value.dtype).removeprefix('torch.')}[{value.numel()}]"
        case list() | tuple():
            return f"[{' '.join(_say(item) for item in value)}]"
        case bool() | int() | str():
            return str(value)
        case _:
            return ""


def _tell(said: dict[int, str], members: Sequence[int], timeout_s: float) -> str:
    sides = Counter(said.values()).most_common()
    parts = [f"{name_ranks(tuple(r for r in said if said[r] == call))}: {call}" for call, _ in sides]
    absent = tuple(rank for rank in members if rank not in said)
    if absent:
        parts.append(f"{name_ranks(absent)}: no call within {timeout_s:.0f} s")
    return "ranks are about to make different calls: " + "; ".join(parts)
