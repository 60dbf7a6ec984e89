"""Norm, largest element and number of NaN or infinite elements of each gradient before it is reduced; layer groups."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

# ---------------------------------------------------------------------------------------------------------------------
# Parameters by layer: a record per tensor would be long, one for the whole model would not say where.

_WRAPPERS = ("module.", "_orig_mod.", "_checkpoint_wrapped_module.")


def plain_name(name: str) -> str:
    """Without what wrappers (DDP, compile, activation checkpointing) add to it."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper).replace(f".{wrapper}", ".")
    return name


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
# Gradients before they are combined with those of other ranks.
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
                self.names.append(plain_name(f"{prefix}.{name}" if prefix else name))
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
