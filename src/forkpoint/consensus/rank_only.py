"""A function that one rank runs alone, and in which a collective is refused."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from forkpoint.consensus.question import members_of
from forkpoint.consensus.refuse import refuse_collectives

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


# ---------------------------------------------------------------------------------------------------------------------
# The name that people look for.

rank_zero_only = rank_only(0)
