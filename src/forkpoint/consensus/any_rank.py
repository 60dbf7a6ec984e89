"""Whether at least one rank says yes; all ranks get the answer."""

import torch
import torch.distributed as dist

from forkpoint.consensus.ask import ask
from forkpoint.consensus.question import TIMEOUT_S, question


def any_rank(
    flag: bool | torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    what: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Every member of the group must call it.

    The bug it ends
        A rank decides alone: it stops early on its own loss, or skips a step on its own NaN. The others go on to the next
        collective and wait for it.

    Wrong
        if not torch.isfinite(loss):
            continue
        loss.backward()

    Right
        if any_rank(not torch.isfinite(loss), what="NaN step"):
            continue
        loss.backward()
    """
    asked = question("any_rank", what, group, timeout_s)
    return ask(asked, int(bool(flag))) > 0
