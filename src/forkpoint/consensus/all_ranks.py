"""Whether every rank says yes; all ranks get the answer."""

import torch
import torch.distributed as dist

from forkpoint.consensus.ask import ask
from forkpoint.consensus.question import TIMEOUT_S, question


def all_ranks(
    flag: bool | torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    what: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Every member of the group must call it.

    The bug it ends
        A rank goes on to something collective because *it* is ready: its save has finished, its metric is a new best, its
        cache is warm. Another is not, and never comes.

    Wrong
        if save.done():
            dist.barrier()
            publish()

    Right
        if all_ranks(save.done(), what="save done"):
            publish()
    """
    asked = question("all_ranks", what, group, timeout_s)
    return ask(asked, int(not flag)) == 0
