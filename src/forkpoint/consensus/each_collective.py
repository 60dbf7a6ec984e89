"""A look at every collective right before it is issued, whoever issues it.

A dispatch mode sees every op that reaches torch's dispatcher, and collectives do, whether from Python, DDP's reducer,
FSDP, DTensor or functional collectives. It is active only inside its block, so nothing is paid elsewhere.
"""

from typing import Any

import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from forkpoint.consensus.torch_inside import group_argument, group_of


class EachCollective(TorchDispatchMode):
    supports_higher_order_operators = True  # compiled code holds them; they run as they are

    def before(self, op: Any, group: dist.ProcessGroup, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called for groups of two ranks and more. What it raises is raised instead of the call."""
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
            return NotImplemented  # it turns the op into plain ones, collectives among them, and those come here
        return func(*args, **named)
