"""How reports name a communication call and the reason why a value differs."""

from pathlib import PurePath

from forkpoint.source.branches import CommStep
from forkpoint.source.value import Reason

_NAMES = {"backward": "the backward pass", "forward": "the wrapped model's forward pass"}


def name_step(step: CommStep) -> str:
    """`all_reduce`, or `log_progress(), which leads to all_reduce`."""
    op = _NAMES.get(step.reach.api.op, step.reach.api.op)
    return op if step.reach.through is None else f"{step.reach.through.short}(), which leads to {op}"


def tell_reason(reason: Reason) -> str:
    return f"`{reason.expression}` ({PurePath(reason.file).name}:{reason.line}): {reason.text}"
