"""Records each rank's gradients before reduction, for the last steps, and writes them to a file when something goes wrong.

    rec = forensics.record(model)
    for x, y, indices in loader:
        loss = cross_entropy(model(x), y)
        rec.before_reduction(loss=loss, data=indices)
        loss.backward()
        optimizer.step()
        rec.step()

See docs/forensics.md for what it costs and what it cannot see.
"""

import atexit
import json
import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from forkpoint.errors import UsageError
from forkpoint.model.values import FORENSICS_SCHEMA, Spread, spread_of_losses, spread_of_norms
from forkpoint.replicas.items import clean
from forkpoint.replicas.watcher import journal_folder

__all__ = ["Recorder", "record"]

# ---------------------------------------------------------------------------------------------------------------------
# Parameters by layer: a record per tensor would be long, one for the whole model would not say where.


def layer_group(name: str) -> str:
    """Up to its first number, or else its first part: `layers.3` of `layers.3.attn.wq.weight`, `embed` of `embed.weight`."""
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: numbered + 1])


def group_places(names: Sequence[str]) -> dict[str, list[int]]:
    """Layer group -> the indexes of its tensors in `names`, in the order of the model."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(layer_group(name), []).append(place)
    return places


# ---------------------------------------------------------------------------------------------------------------------
# Gradients before they are combined with those of other ranks: norm, largest element and number of NaN or infinite elements.
#
# A post-accumulate hook runs before the reducer of DistributedDataParallel sees the gradient: torch calls it inside the
# accumulation, and the reducer's hook after it. So it sees what this rank alone computed, even if gradients are views into
# the reducer's buckets; with micro-batches it sees their sum. The parameters of FSDP2 are shards that never get a
# gradient; the whole parameters exist from a module's first forward on, so they are hooked there. tests/forensics checks
# all three on real ranks.
#
# Each tensor is measured at once, not with its layer group: as soon as a bucket is full, reducing it overwrites its
# gradients.

NORM, LARGEST, NONFINITE = range(3)
"""Columns of the measurements."""


class GradientMeter:
    """Measures while `wanted` returns True. Results stay on the device: nothing here waits for them."""

    def __init__(self, model: nn.Module, wanted: Callable[[], bool]) -> None:
        self.names: list[str] = []
        self._wanted = wanted
        self._model = model
        self._measured: dict[int, Tensor] = {}
        """Index of the tensor -> its three numbers, in the order of backward."""
        self._named: set[int] = set()
        self._hooked: set[int] = set()
        self._handles: list[RemovableHandle] = []
        for prefix, module in model.named_modules():
            self._hook_module(prefix, module)

    def take(self) -> tuple[Tensor, list[int]]:
        """The measurements since the last call, one row per tensor, and the indexes in the order of backward.

        A tensor without a gradient has zeros.
        """
        measured, self._measured = self._measured, {}
        device = next(iter(measured.values())).device if measured else torch.device("cpu")
        none = torch.zeros(3, device=device)
        rows = [measured.get(place, none) for place in range(len(self.names))]
        return (torch.stack(rows) if rows else torch.zeros(0, 3)), list(measured)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook_module(self, prefix: str, module: nn.Module) -> None:
        places: dict[str, int] = {}
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in self._named and parameter.requires_grad:
                self._named.add(id(parameter))
                places[name] = len(self.names)
                self.names.append(clean(f"{prefix}.{name}" if prefix else name))
        if any(isinstance(getattr(module, name), DTensor) for name in places):
            self._handles.append(module.register_forward_pre_hook(partial(self._hook_whole, places)))
        else:
            self._hook_parameters(module, places)

    def _hook_whole(self, places: dict[str, int], module: nn.Module, _arguments: Any) -> None:
        """FSDP2 has put the whole parameters into the module; they stay the same objects from step to step."""
        fresh = {name: place for name, place in places.items() if id(getattr(module, name)) not in self._hooked}
        self._hooked.update(id(getattr(module, name)) for name in fresh)
        self._hook_parameters(module, fresh)

    def _hook_parameters(self, module: nn.Module, places: dict[str, int]) -> None:
        for name, place in places.items():
            hook = partial(self._measure, place)
            self._handles.append(getattr(module, name).register_post_accumulate_grad_hook(hook))

    def _measure(self, place: int, parameter: Tensor) -> None:
        if parameter.grad is None or not self._wanted() or not getattr(self._model, "require_backward_grad_sync", True):
            return  # inside DDP's no_sync more is added later
        gradient: Tensor = parameter.grad
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        self._measured.pop(place, None)
        self._measured[place] = measure(local.detach())


def measure(tensor: Tensor) -> Tensor:
    """Its norm, largest absolute element and number of elements that are NaN or infinite.

    Reads it twice, and on a GPU a third time (with a copy) to count, since the host does not know whether there are any.
    """
    if tensor.numel() == 0:
        return torch.zeros(3, device=tensor.device)
    sizes = tensor.abs() if tensor.is_complex() else tensor
    norm = torch.linalg.vector_norm(sizes, dtype=torch.float32)
    least, most = torch.aminmax(sizes)  # faster than the infinity norm, and it also propagates NaN
    largest = torch.maximum(-least, most).float()
    if not tensor.is_cuda and largest.isfinite():
        return torch.stack([norm, largest, torch.zeros(())])
    return torch.stack([norm, largest, (sizes - sizes).count_nonzero().float()])  # x - x is 0 for all others


# ---------------------------------------------------------------------------------------------------------------------
# The last steps of this rank, and whether the newest one is worth recording.


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step, on the host."""

    step: int
    loss: float | None
    measured: Tensor
    """A row per tensor, with the columns NORM, LARGEST and NONFINITE."""
    order: list[int]
    """Indexes of tensors in the order of backward."""
    data: list[int]
    data_left_out: int
    """Indices of the batch that were not kept."""

    @property
    def norm(self) -> float:
        """The norm of all gradients together."""
        return float(torch.linalg.vector_norm(self.measured[:, NORM], dtype=torch.float64))

    @property
    def first_nonfinite(self) -> int | None:
        """The tensor in which backward first produced NaN or infinity: nearest to the loss."""
        return next((place for place in self.order if self.measured[place, NONFINITE]), None)


@dataclass(frozen=True, slots=True)
class Odd:
    """Why a step is worth recording."""

    says: str
    place: int | None
    """Index of the tensor that shows it most."""


class Ring:
    def __init__(self, size: int) -> None:
        self.steps: deque[Step] = deque(maxlen=size)
        self._norms: deque[float] = deque(maxlen=size)
        self._losses: deque[float] = deque(maxlen=size)

    def add(self, step: Step) -> Odd | None:
        """Keeps the step, and returns how it differs from those before, if it does."""
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


# ---------------------------------------------------------------------------------------------------------------------
# The file of one rank: JSON lines, schema `forkpoint.forensics/1`.
#
# The first line has rank, world, interval and groups of tensors; then one line per step (loss, and per group norm, largest
# element and number of NaN or infinite elements), and one line for what triggered the write. docs/forensics.md shows them.
#
# NaN and infinity are the strings `nan`, `inf`, `-inf`: JSON has no numbers for them.

_DIGITS = 6


def head_line(rank: int, world: int, every: int, groups: Sequence[str]) -> str:
    return json.dumps({"schema": FORENSICS_SCHEMA, "rank": rank, "world": world, "every": every, "groups": [*groups]})


def step_line(step: Step, groups: Mapping[str, Sequence[int]], names: Sequence[str]) -> str:
    parts = [step.measured[list(places)] for places in groups.values()]
    told: dict[str, object] = {"step": step.step}
    if step.loss is not None:
        told["loss"] = _number(step.loss)
    told["norm"] = [_number(float(part[:, NORM].double().norm())) for part in parts]
    told["max"] = [_number(float(part[:, LARGEST].max())) for part in parts]  # NaN if there is one
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


def _number(value: float) -> float | str:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


_MOST_INDICES: Final = 256
"""Indexes of a step's batch that are kept; the others are counted."""
_MOST_TRIGGERS: Final = 50
"""A run that stays broken would write every step; after this many triggers the ring is written only at exit."""


@dataclass(frozen=True, slots=True, eq=False)
class _Copying:
    """A step whose numbers are being copied to the host."""

    step: int
    numbers: Tensor
    """Rows of tensors, and a last one with the loss."""
    order: list[int]
    data: list[Tensor]
    samples: int
    has_loss: bool
    arrived: "torch.cuda.Event | None"


def record(
    model: nn.Module, *, every: int = 1, ring: int = 200, folder: str | None = None, first_step: int = 1
) -> "Recorder":
    """Records the gradients of this model, wrapped (DDP, FSDP2) or not, on every rank.

    `every`: steps between records; `ring`: how many records are kept; `first_step`: its number, after a restart. Files go
    to `folder`, or to `FORKPOINT_REPLICAS_DIR`, or to `forkpoint-replicas`, where those of `replicas.watch` are.
    """
    if every < 1 or ring < 1:
        raise UsageError(f"forensics.record: every={every} and ring={ring} must be at least 1")
    recorder = Recorder(model, every, ring, first_step, journal_folder(folder))
    atexit.register(recorder.write)
    return recorder


class Recorder:
    def __init__(self, model: nn.Module, every: int, ring: int, first_step: int, folder: Path) -> None:
        self._every = every
        self._step = first_step
        self._losses: list[Tensor] = []
        self._data: list[Tensor] = []
        self._samples = 0
        self._meter = GradientMeter(model, self._is_due)
        self._groups = group_places(self._meter.names)
        self._copying: deque[_Copying] = deque()
        self._ring = Ring(ring)
        self._triggers = 0
        self._begun = False
        self._written = -1
        """The last step that is in the file."""
        joined = dist.is_initialized()
        self._rank, self._world = (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)
        self.path = folder / f"forensics_rank_{self._rank}.jsonl"

    def before_reduction(self, *, loss: Tensor | None = None, data: Tensor | Sequence[int] | None = None) -> None:
        """This rank's own loss and the indices of its batch. Call it once per micro-batch, before or after backward."""
        if not self._is_due():
            return
        if loss is not None:
            self._losses.append(loss.detach().float())
        if data is not None:
            indices = torch.as_tensor(data).detach().reshape(-1)
            self._data.append(indices[:_MOST_INDICES])
            self._samples += len(indices)

    def step(self) -> None:
        """Call it at the end of a training step. Examines records that have arrived on the host, without waiting."""
        if self._is_due():
            self._send()
        self._step += 1
        self._receive(wait=False)

    def write(self) -> Path:
        """Writes the steps that are not in the file yet. Waits for the device."""
        self._receive(wait=True)
        self._append([])
        return self.path

    def close(self) -> None:
        """Writes, and removes the hooks from the model. Needed by processes that end without Python's normal exit."""
        atexit.unregister(self.write)
        self.write()
        self._meter.remove()

    def _is_due(self) -> bool:
        return self._step % self._every == 0

    def _send(self) -> None:
        measured, order = self._meter.take()
        losses, self._losses = self._losses, []
        data, self._data = self._data, []
        samples, self._samples = self._samples, 0
        loss = torch.zeros(1, 3, device=measured.device)
        if losses:
            loss[0, 0] = torch.stack(losses).mean()
        numbers, arrived = torch.cat([measured, loss]), None
        if numbers.is_cuda:
            numbers = numbers.to("cpu", non_blocking=True)
            data = [part.to("cpu", non_blocking=True) for part in data]
            arrived = torch.cuda.Event()
            arrived.record()
        self._copying.append(_Copying(self._step, numbers, order, data, samples, bool(losses), arrived))

    def _receive(self, *, wait: bool) -> None:
        while self._copying:
            first = self._copying[0]
            if first.arrived is not None:
                if wait:
                    first.arrived.synchronize()
                elif not first.arrived.query():
                    return
            self._copying.popleft()
            self._take_in(first)

    def _take_in(self, came: _Copying) -> None:
        indices = [int(index) for part in came.data for index in part.tolist()][:_MOST_INDICES]
        loss = float(came.numbers[-1, 0]) if came.has_loss else None
        step = Step(came.step, loss, came.numbers[:-1], came.order, indices, came.samples - len(indices))
        odd = self._ring.add(step)
        if odd is not None and self._triggers < _MOST_TRIGGERS:
            self._triggers += 1
            self._append([trigger_line(step, odd, self._meter.names)])

    def _append(self, more: list[str]) -> None:
        fresh = [step for step in self._ring.steps if step.step > self._written]
        lines = [step_line(step, self._groups, self._meter.names) for step in fresh]
        if not self._begun:
            lines.insert(0, head_line(self._rank, self._world, self._every, list(self._groups)))
        self._begun, self._written = True, fresh[-1].step if fresh else self._written
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in (*lines, *more)))
        except OSError as error:
            warnings.warn(f"{self.path}: forensics cannot be written ({error.strerror})", stacklevel=2)
