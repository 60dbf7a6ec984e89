"""One rank's exception becomes everybody's."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import torch.distributed as dist

from forkpoint.consensus.ask import ask, tell
from forkpoint.consensus.question import TIMEOUT_S, members_of, question
from forkpoint.consensus.refuse import collectives_issued


@contextmanager
def agree_on_exception(
    what: str | None = None, group: dist.ProcessGroup | None = None, *, timeout_s: float = TIMEOUT_S
) -> Generator[None]:
    """The rank that raised raises its own exception, the others `PeerFailed`, which names it.

    Ctrl-C is not passed on: launchers send it to every rank.

    The bug it ends
        A file is missing, a record is bad, memory runs out: on one rank. It raises, or it catches and goes on, and the
        others wait in the next collective until the watchdog ends them.

    Wrong
        batch = next(batches)
        train_step(batch)

    Right
        with agree_on_exception("next batch"):
            batch = next(batches)
        train_step(batch)

    The others learn of it at the end of the block. A collective inside the block is not covered: a rank that raises before it
    leaves the others waiting *there*. A warning is given if one ran inside. Agreements of this package are covered.
    """
    members_of(group)  # a rank that is not a member learns it before the block, not after
    before = collectives_issued()
    try:
        yield
    except (Exception, SystemExit) as error:
        tell(question("agree_on_exception", what, group, timeout_s), error)
        raise
    inside = collectives_issued() - before
    if inside > 0:
        warnings.warn(
            f"agree_on_exception: collectives ran inside its block ({inside}). A rank that raises before one of them leaves "
            "the others waiting there; move them after the block",
            stacklevel=3,
        )
    ask(question("agree_on_exception", what, group, timeout_s))
