"""What is compared, and which ranks have a copy of each tensor: from DDP's groups and DTensor's placements."""

import hashlib
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from forkpoint.replicas.checksums import is_comparable, method
from forkpoint.replicas.report import NotDerivable, What

Ranks = tuple[int, ...]
Scalar = float | int | bool | Tensor
"""A tensor of one element is read when it is compared."""


@dataclass(frozen=True, slots=True)
class Item:
    what: What
    name: str
    tensor: Tensor
    """This rank's local tensor."""
    ranks: Ranks
    """The ranks that have the same tensor, including this one."""

    @property
    def key(self) -> tuple[What, str, Ranks]:
        return self.what, self.name, self.ranks

    @property
    def layout(self) -> str:
        kind = str(self.tensor.dtype).removeprefix("torch.")
        return f"{self.what} {self.name} {kind}{list(self.tensor.shape)} {method(self.tensor.device)}"

    @property
    def bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()


def by_ranks(items: Iterable[Item]) -> dict[Ranks, list[Item]]:
    """Items by set of ranks, in the same order on every rank, so that ranks of several sets do not deadlock. A set of one
    has no replica.
    """
    found: defaultdict[Ranks, list[Item]] = defaultdict(list)
    for item in items:
        if len(item.ranks) > 1:
            found[item.ranks].append(item)
    return dict(sorted(found.items()))


def scalar_items(scalars: Mapping[str, Scalar], ranks: Ranks) -> list[Item]:
    return [Item(What.SCALAR, name, _number(scalars[name]), ranks) for name in sorted(scalars)]


def _number(value: Scalar) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def layout_number(item: Item) -> int:
    return _digest(item.layout.encode())


def digest(numbers: Iterable[int]) -> int:
    """A 64-bit digest of a list of 64-bit numbers."""
    values = list(numbers)
    return _digest(struct.pack(f"<{len(values)}q", *values))


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks have a copy of each tensor of a model.
#
# | the tensor is | its replicas are |
# |---|---|
# | a DTensor (FSDP2, HSDP, TP) | the ranks that differ from this one only in mesh dimensions it is replicated over |
# | a parameter or buffer below DistributedDataParallel | the members of that DDP's group |
# | anything else | all ranks, or the group that was given |
#
# Optimizer state belongs to its parameter. Tied parameters count once.

_WRAPPERS = ("module", "_orig_mod", "_checkpoint_wrapped_module")
"""Parts of names that DDP, torch.compile and activation checkpointing add."""
_SHARDED_OPTIMIZER = "ZeroRedundancyOptimizer"
"""Each rank has a different part of the state, so there is nothing to compare. By name: importing it takes seconds."""
_FLAT_SHARDS = "FullyShardedDataParallel"


def model_items(model: nn.Module, everybody: Ranks, may_differ: Sequence[str]) -> Iterator[Item]:
    """Its parameters, and those buffers that are not known or declared to differ."""
    _refuse_flat_parameters(model)
    for name, parameter in model.named_parameters():
        yield from _items(What.PARAMETER, model, name, parameter, everybody)
    for name, buffer in model.named_buffers():
        if not _follows_its_own_batches(model, name) and not is_declared(clean(name), may_differ):
            yield from _items(What.BUFFER, model, name, buffer, everybody)


def gradient_items(model: nn.Module, everybody: Ranks) -> Iterator[Item]:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            yield from _items(What.GRADIENT, model, name, parameter.grad, everybody)


def optimizer_items(model: nn.Module, optimizers: Iterable[Optimizer], everybody: Ranks) -> Iterator[Item]:
    """In the order of the parameters, whatever the order in which their state was created."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        if _is_a(optimizer, _SHARDED_OPTIMIZER):
            continue
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, parameter in enumerate(parameters):
            name = names.get(parameter, f"parameter {number} of {type(optimizer).__name__}")
            for item in _items(What.OPTIMIZER, model, name, parameter, everybody):
                yield from _state_items(item, optimizer.state.get(parameter, {}), model, everybody)


def optimizer_settings(optimizers: Iterable[Optimizer]) -> dict[str, Any]:
    """Settings of parameter groups that must be equal, as scalars."""
    return {
        f"optimizer.{key}[{number}.{place}]": group[key]
        for number, optimizer in enumerate(optimizers)
        for place, group in enumerate(optimizer.param_groups)
        for key in ("lr", "weight_decay")
        if isinstance(group.get(key), (int, float, Tensor))
    }


def is_declared(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def clean(name: str) -> str:
    """The user's name, without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS) or name


def _state_items(owner: Item, state: dict[str, Any], model: nn.Module, everybody: Ranks) -> Iterator[Item]:
    for key in sorted(state):
        value, name = state[key], f"{owner.name}.{key}"
        if isinstance(value, DTensor):
            yield from _items(What.OPTIMIZER, model, name, value, everybody)
        elif isinstance(value, Tensor) and is_comparable(value):
            yield Item(What.OPTIMIZER, name, value, owner.ranks)
        elif isinstance(value, (int, float)):
            yield Item(What.OPTIMIZER, name, torch.tensor(value, dtype=torch.float64), owner.ranks)


def _items(what: What, model: nn.Module, name: str, tensor: Tensor, everybody: Ranks) -> Iterator[Item]:
    """One, or two if a DTensor is replicated over its mesh and over a DDP group around it."""
    data_parallel = _ddp_ranks(model, name)
    if isinstance(tensor, DTensor):
        mesh_ranks, local = _mesh_ranks(tensor), tensor.to_local()
        sets = {mesh_ranks, data_parallel or mesh_ranks}
    else:
        local, sets = tensor, {everybody if data_parallel is None else data_parallel}
    if is_comparable(local):
        yield from (Item(what, clean(name), local, ranks) for ranks in sorted(sets) if ranks)


def _mesh_ranks(tensor: DTensor) -> Ranks:
    mesh = tensor.device_mesh
    here = mesh.get_coordinate()
    if here is None:
        return ()
    same = tuple(
        slice(None) if placement.is_replicate() else place
        for placement, place in zip(tensor.placements, here, strict=True)
    )
    return tuple(sorted(mesh.mesh[same].flatten().tolist()))


def _ddp_ranks(model: nn.Module, name: str) -> Ranks | None:
    """The group of the innermost DDP around a tensor, unless DDP ignores the tensor. None: no DDP around it."""
    found: Ranks | None = None
    module: Any = model
    parts = name.split(".")
    for depth, part in enumerate(parts):
        if isinstance(module, DistributedDataParallel):
            ignored = ".".join(parts[depth + 1 :]) in module.parameters_to_ignore
            found = () if ignored else tuple(sorted(dist.get_process_group_ranks(module.process_group)))
        module = getattr(module, part, None)
    return found


def _follows_its_own_batches(model: nn.Module, name: str) -> bool:
    """Running statistics of batch and instance norms differ by rank between two broadcasts."""
    owner = name.rpartition(".")[0]
    return isinstance(model.get_submodule(owner), _NormBase)


def _refuse_flat_parameters(model: nn.Module) -> None:
    if any(_is_a(module, _FLAT_SHARDS) for module in model.modules()):
        raise NotDerivable(
            "FullyShardedDataParallel (FSDP1) keeps flat shards whose replicas cannot be derived from outside; "
            "give replicas.watch(tensors=..., group=...) what must be equal, or use fully_shard"
        )


def _is_a(value: object, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(value).__mro__)
