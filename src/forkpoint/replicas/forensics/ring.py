"""The last steps of this rank, and whether the newest of them is worth writing down."""

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from forkpoint.model.spread import Spread, spread_of_losses, spread_of_norms
from forkpoint.replicas.forensics.gradients import NONFINITE, NORM


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step, on the host."""

    step: int
    loss: float | None
    measured: Tensor
    """A row per tensor: see gradients.py."""
    order: list[int]
    """Places of tensors as backward came to them."""
    data: list[int]
    data_left_out: int
    """Indices of the batch that were not kept."""

    @property
    def norm(self) -> float:
        """Of all gradients together."""
        return float(torch.linalg.vector_norm(self.measured[:, NORM], dtype=torch.float64))

    @property
    def first_nonfinite(self) -> int | None:
        """The place of the tensor in which backward met NaN or infinity first: nearest to the loss."""
        return next((place for place in self.order if self.measured[place, NONFINITE]), None)


@dataclass(frozen=True, slots=True)
class Odd:
    """Why a step is worth writing down."""

    says: str
    place: int | None
    """Of the tensor in which it shows most."""


class Ring:
    def __init__(self, size: int) -> None:
        self.steps: deque[Step] = deque(maxlen=size)
        self._norms: deque[float] = deque(maxlen=size)
        self._losses: deque[float] = deque(maxlen=size)

    def add(self, step: Step) -> Odd | None:
        """Keep it; the answer says what is odd about it beside the steps that were there."""
        norm, loss = step.norm, step.loss
        odd = self._judge(step, norm)
        self.steps.append(step)
        self._norms.append(norm)
        if loss is not None:
            self._losses.append(loss)
        return odd

    def _judge(self, step: Step, norm: float) -> Odd | None:
        place = step.first_nonfinite
        if place is not None:
            return Odd("a gradient is NaN or infinite", place)
        if step.loss is not None and not math.isfinite(step.loss):
            return Odd("the loss is NaN or infinite", None)
        usual = spread_of_norms(self._norms)
        if usual is not None and norm > usual.limit:
            return Odd(_told("the norm of the gradients", norm, usual), self._most_grown(step))
        usual = spread_of_losses(self._losses)
        if usual is not None and step.loss is not None and step.loss > usual.limit:
            return Odd(_told("the loss", step.loss, usual), None)
        return None

    def _most_grown(self, step: Step) -> int:
        """The tensor whose norm is the largest multiple of its own median."""
        before = torch.stack([s.measured[:, NORM] for s in self.steps])
        usual = before.nanmedian(dim=0).values.clamp_min(torch.finfo(torch.float32).tiny)
        return int((step.measured[:, NORM] / usual).argmax())


def _told(what: str, value: float, usual: Spread) -> str:
    return f"{what} is {value:.4g}, its median {usual.middle:.4g}, the limit {usual.limit:.4g}"
