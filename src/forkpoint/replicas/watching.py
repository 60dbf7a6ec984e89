"""`watch` and `check`: what training code calls."""

from collections.abc import Mapping, Sequence

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from forkpoint.replicas.errors import ReplicasError
from forkpoint.replicas.items import Ranks, Scalar
from forkpoint.replicas.report import Report
from forkpoint.replicas.watcher import Rhythm, Subject, Watch

EVERY = 100
"""Steps. A check reads parameters and optimizer state twice, which AdamW alone reads and writes in every step."""
TIMEOUT_S = 300.0
"""For the others to come to a check. After that nothing is watched any more."""


def watch(  # noqa: PLR0913 - each is a choice of its own, by name
    model: nn.Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    group: dist.ProcessGroup | None = None,
    every: int = EVERY,
    may_differ: Sequence[str] = (),
    check_gradients: bool = False,
    raise_on_mismatch: bool = False,
    folder: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Watch:
    """Compare what must be equal, from now on. Every rank calls this, and then `step()` in every training step.

    `group` holds what no wrapper says anything about: given tensors, plain modules, scalars (None: all ranks).
    `may_differ`: names as patterns (`ema.*`). Call it after the model is wrapped.
    """
    optimizers = _listed(optimizer)
    if model is None and (optimizers or not tensors):
        raise ReplicasError("nothing to watch: give replicas.watch a model (and its optimizer), or tensors= by name")
    if check_gradients and not optimizers:
        raise ReplicasError("check_gradients hooks optimizer.step(): give the optimizer, or call gradients() yourself")
    subject = Subject(model, optimizers, tensors or {}, _everybody(group), tuple(may_differ))
    subject.items()  # what cannot be derived is said now, not at the first check
    return Watch(subject, Rhythm(every, check_gradients, raise_on_mismatch, timeout_s), folder)


def check(  # noqa: PLR0913 - as above
    model: nn.Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
    group: dist.ProcessGroup | None = None,
    may_differ: Sequence[str] = (),
    folder: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Report | None:
    """Compare once, here. None: a job of one process, or not all ranks came."""
    once = watch(
        model,
        optimizer,
        tensors=tensors,
        group=group,
        every=1,
        may_differ=may_differ,
        folder=folder,
        timeout_s=timeout_s,
    )
    try:
        return once.step(scalars)
    finally:
        once.close()


def _listed(optimizer: Optimizer | Sequence[Optimizer] | None) -> tuple[Optimizer, ...]:
    if optimizer is None:
        return ()
    return (optimizer,) if isinstance(optimizer, Optimizer) else tuple(optimizer)


def _everybody(group: dist.ProcessGroup | None) -> Ranks:
    if not dist.is_initialized():
        return (0,)
    return tuple(sorted(dist.get_process_group_ranks(group or dist.group.WORLD)))
