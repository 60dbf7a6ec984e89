"""A value that must be equal everywhere, checked where it is made."""

import json
from typing import TypeVar

import torch.distributed as dist

from forkpoint.consensus.ask import ask
from forkpoint.consensus.question import TIMEOUT_S, question

Value = TypeVar("Value")


def same_on_all_ranks(
    value: Value, what: str, group: dist.ProcessGroup | None = None, *, timeout_s: float = TIMEOUT_S
) -> Value:
    """The value, or `RanksDisagree` on every member.

    Compared as JSON: None, bool, int, float, str, list, tuple, dict of these. The order of a dict's keys does not
    count; give `list(d)` where it does.

    The bug it ends
        The number of micro-batches, a padded length, the keys of a dict, a setting: each rank works it out alone, and one
        comes to another result. The collectives built on it differ in number, order or size, and hang much later.

    Wrong
        for key in metrics:
            dist.all_reduce(metrics[key])

    Right
        for key in same_on_all_ranks(sorted(metrics), "metric keys"):
            dist.all_reduce(metrics[key])
    """
    asked = question("same_on_all_ranks", what, group, timeout_s)
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:  # on one rank, perhaps: the others must not wait for it
        ask(asked, failure=error)
        raise
    ask(asked, value=text)
    return value
