"""Plain words for what was found in source."""

from pathlib import PurePath

from forkpoint.source.branches import Step
from forkpoint.source.value import Reason

_NAMES = {"backward": "the backward pass", "forward": "the wrapped model's forward pass"}


def name_step(step: Step) -> str:
    """`all_reduce`, or `log_progress(), which comes to all_reduce`."""
    op = _NAMES.get(step.reach.api.op, step.reach.api.op)
    return op if step.reach.through is None else f"{step.reach.through.short}(), which comes to {op}"


def tell_reason(reason: Reason) -> str:
    return f"`{reason.expression}` ({PurePath(reason.file).name}:{reason.line}): {reason.text}"
