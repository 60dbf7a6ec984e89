"""`forensics_rank_N.jsonl`: the loss and the gradients of a rank before reduction. docs/forensics.md has the format.

A process that was started again appends to its file: only its last run is kept, since steps count from its start.
"""

import math
from collections.abc import Sequence
from typing import Final

from forkpoint.ingest.value_lines import JsonLine, items, real, reals, whole, wholes, words, world_size
from forkpoint.model.values import ForensicsLog, StepValues, Trigger

_MAX_GROUPS: Final = 1 << 14
_MAX_INDICES: Final = 1024


def read_forensics(lines: Sequence[JsonLine], name: str, *, cut: bool) -> ForensicsLog | None:
    """None: the file does not say its rank."""
    heads = [place for place, line in enumerate(lines) if "schema" in line.told]
    head, run = lines[heads[-1]].told, lines[heads[-1] + 1 :]
    rank = whole(head.get("rank"))
    if rank is None:
        return None
    groups = tuple(words(group) for group in items(head.get("groups"), _MAX_GROUPS))
    steps: dict[int, StepValues] = {}
    for line in run:
        step = _read_step(line, len(groups))
        if step is not None:
            steps.setdefault(step.step, step)
    triggers = tuple(trigger for line in run if (trigger := _read_trigger(line)))
    return ForensicsLog(name, rank, world_size(head), groups, tuple(steps[s] for s in sorted(steps)), triggers, cut)


def _read_step(line: JsonLine, groups: int) -> StepValues | None:
    told = line.told
    step, norms, largest = whole(told.get("step")), reals(told.get("norm"), groups), reals(told.get("max"), groups)
    nonfinite = wholes(told.get("nonfinite"), groups)
    if "trigger" in told or step is None or norms is None or largest is None or len(nonfinite) != groups:
        return None
    loss = real(told.get("loss"))
    return StepValues(
        line=line.number,
        step=step,
        loss=_finite(loss),
        broken_loss=loss is not None and not math.isfinite(loss),
        norms=tuple(map(_finite, norms)),
        largest=tuple(map(_finite, largest)),
        nonfinite=nonfinite,
        first_nonfinite=words(told.get("first_nonfinite")) or None,
        data=wholes(told.get("data"), _MAX_INDICES),
        data_is_whole="data_left_out" not in told and len(items(told.get("data"), _MAX_INDICES + 1)) <= _MAX_INDICES,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _read_trigger(line: JsonLine) -> Trigger | None:
    step, says = whole(line.told.get("step")), words(line.told.get("trigger"))
    if step is None or not says:
        return None
    return Trigger(line.number, step, says, words(line.told.get("tensor")) or None)
