"""The file of one rank: JSON lines, schema `forkpoint.forensics/1`.

    {"schema": "forkpoint.forensics/1", "rank": 2, "world": 4, "every": 1, "groups": ["embed", "layers.0"]}
    {"step": 11, "loss": 0.53, "norm": [0.8, 1.2], "max": [0.1, 0.3], "nonfinite": [0, 0], "data": [64, 65]}
    {"trigger": "a gradient is NaN or infinite", "step": 12, "tensor": "layers.0.weight"}

NaN and infinity are the texts `nan`, `inf`, `-inf`: JSON has no numbers for them.
"""

import json
import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from forkpoint.model.values import FORENSICS_SCHEMA
from forkpoint.replicas.forensics.gradients import LARGEST, NONFINITE, NORM
from forkpoint.replicas.forensics.ring import Odd, Step

_DIGITS = 6


def head_line(rank: int, world: int, every: int, groups: Sequence[str]) -> str:
    return json.dumps({"schema": FORENSICS_SCHEMA, "rank": rank, "world": world, "every": every, "groups": [*groups]})


def step_line(step: Step, groups: Mapping[str, Sequence[int]], names: Sequence[str]) -> str:
    parts = [step.measured[list(places)] for places in groups.values()]
    told: dict[str, object] = {"step": step.step}
    if step.loss is not None:
        told["loss"] = _number(step.loss)
    told["norm"] = [_number(float(part[:, NORM].double().norm())) for part in parts]
    told["max"] = [_number(_largest(part)) for part in parts]
    told["nonfinite"] = [int(part[:, NONFINITE].double().sum()) for part in parts]
    if step.first_nonfinite is not None:
        told["first_nonfinite"] = names[step.first_nonfinite]
    if step.data:
        told["data"] = step.data
    if step.data_left_out:
        told["data_left_out"] = step.data_left_out
    return json.dumps(told)


def trigger_line(step: Step, odd: Odd, names: Sequence[str]) -> str:
    told: dict[str, object] = {"trigger": odd.says, "step": step.step}
    if odd.place is not None:
        told["tensor"] = names[odd.place]
    return json.dumps(told)


def _largest(part: Tensor) -> float:
    return float(part[:, LARGEST].max())  # NaN, where there is one


def _number(value: float) -> float | str:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)
