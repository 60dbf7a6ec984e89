"""Refuses collectives in code that one rank runs alone (`rank_only`): looks at every collective right before it is issued."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from forkpoint.consensus.question import (
    CollectiveInRankZero,
    Members,
    group_argument,
    group_of,
    groups,
    issued,
    members_of,
    sequence_number,
)


def collectives_issued() -> int:
    """Over all groups whose backend counts, without those of this package."""
    if not dist.is_initialized():
        return 0
    counted = [(group, sequence_number(group)) for group in groups()]
    return sum(number - issued(group) for group, number in counted if number is not None)


# ---------------------------------------------------------------------------------------------------------------------
# A hook that runs right before every collective, whoever issues it.
#
# A dispatch mode sees every op that reaches torch's dispatcher, and collectives do, whether from Python, DDP's
# reducer, FSDP, DTensor or functional collectives. It is active only inside its block, so it costs nothing elsewhere.


class EachCollective(TorchDispatchMode):
    supports_higher_order_operators = True  # compiled code contains them; they run unchanged

    def before(self, op: Any, group: dist.ProcessGroup, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called for groups of two or more ranks. If it raises, the collective is not issued."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        argument = group_argument(func)
        if argument is not None:
            position, name = argument
            group = group_of(args[position] if position < len(args) else named[name])
            if group.size() > 1:
                self.before(func, group, args, named)
        if DTensor in types:
            return NotImplemented  # DTensor turns the op into plain ones, which come here again
        return func(*args, **named)


_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@contextmanager
def refuse_collectives(where: str, members: Members) -> Generator[None]:
    if members.size == 1:
        yield
        return
    with _Refuse(where, members.rank):
        yield


class _Refuse(EachCollective):
    def __init__(self, where: str, rank: int) -> None:
        super().__init__()
        self._where, self._rank = where, rank

    def before(self, op: Any, group: object, args: object, kwargs: object) -> None:
        del group, args, kwargs
        raise CollectiveInRankZero(
            f"{op} at {_place(sys._getframe())}: {self._where} runs on rank {self._rank} alone, "  # noqa: SLF001 - `inspect` does the same
            "so the other ranks of the group would never call it"
        )


def _place(frame: FrameType | None) -> str:
    """The innermost line that is not torch's or ours."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return "a thread of torch's own" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


Given = ParamSpec("Given")
Result = TypeVar("Result")


def rank_only(rank: int) -> Callable[[Callable[Given, Result]], Callable[Given, Result | None]]:
    """Runs on this global rank; the others get None. `CollectiveInRankZero` is raised at the call that communicates.

    The bug it ends
        Rank 0 evaluates, saves or logs, and something in there communicates: the DDP-wrapped model broadcasts its buffers,
        a metric gathers, a sharded state dict is collected. Rank 0 waits for ranks that will never call it.

    Wrong
        if rank == 0:
            evaluate(ddp_model)

    Right
        @rank_zero_only
        def report(): evaluate(ddp_model.module)
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result | None]:
        @wraps(function)
        def alone(*args: Given.args, **kwargs: Given.kwargs) -> Result | None:
            members = members_of(None)
            if members.rank != rank:
                return None
            with refuse_collectives(f"{function.__name__}()", members):
                return function(*args, **kwargs)

        return alone

    return decorate


rank_zero_only = rank_only(0)
