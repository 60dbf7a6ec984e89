"""Compares replicas while a job trains: every few steps, cheaply, silent while all is well."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from forkpoint.replicas.bits import is_comparable
from forkpoint.replicas.checksums import Checksums, checksums
from forkpoint.replicas.compare import Key, Standing, compare
from forkpoint.replicas.derive import gradient_items, is_declared, model_items, optimizer_items, optimizer_settings
from forkpoint.replicas.errors import ReplicasDiffer
from forkpoint.replicas.exchange import Exchange
from forkpoint.replicas.items import Item, Ranks, Scalar, by_ranks, scalar_items
from forkpoint.replicas.journal import Journal
from forkpoint.replicas.report import Compared, Mismatch, Report, What

_SHOWN = 16
"""Mismatches of one check that are spelled out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched."""

    model: nn.Module | None
    optimizers: tuple[Optimizer, ...]
    tensors: Mapping[str, Tensor]
    everybody: Ranks
    """Holders of what no wrapper says anything about, and of scalars."""
    may_differ: tuple[str, ...]

    def items(self) -> list[Item]:
        """Looked up anew for every check: state of the optimizer is made late, and tensors are replaced."""
        named = [Item(What.TENSOR, name, _local(tensor), self.everybody) for name, tensor in self.tensors.items()]
        found = [item for item in named if is_comparable(item.tensor)]
        if self.model is not None:
            found += model_items(self.model, self.everybody, self.may_differ)
            found += optimizer_items(self.model, self.optimizers, self.everybody)
        return [item for item in found if not is_declared(item.name, self.may_differ)]

    def gradients(self) -> list[Item]:
        found = gradient_items(self.model, self.everybody) if self.model is not None else ()
        return [item for item in found if not is_declared(item.name, self.may_differ)]


@dataclass(frozen=True, slots=True)
class Rhythm:
    every: int
    check_gradients: bool
    raise_on_mismatch: bool
    timeout_s: float


class Watch:
    """Made by `replicas.watch`. Every rank of the job calls its methods at the same places."""

    def __init__(self, subject: Subject, rhythm: Rhythm, folder: str | None) -> None:
        self._subject = subject
        self._rhythm = rhythm
        self._exchange = Exchange(rhythm.timeout_s)
        self._rank = dist.get_rank() if dist.is_initialized() else 0
        self._journal = Journal(folder, self._rank)
        self._step = 0
        self._updates = 0
        self._checked = False
        self._off = not dist.is_initialized()
        self._warned = False
        self._last_equal: int | None = None
        self._at_last_check: dict[Key, int] = {}
        self._step_ago: tuple[list[Key], Checksums] | None = None
        self._of_gradients: list[Mismatch] = []
        self._hooks: list[Any] = []
        for optimizer in subject.optimizers:
            self._hooks.append(optimizer.register_step_post_hook(self._count_update))
        if rhythm.check_gradients:
            self._hooks.append(subject.optimizers[0].register_step_pre_hook(self._before_update))

    def step(self, scalars: Mapping[str, Scalar] | None = None, *, step: int | None = None) -> Report | None:
        """Once per training step, after the optimizer's. Checks at the first step and then when it is due.

        None: not due. `step`: the job's own number, where it does not count from 1 (after a restart from a checkpoint).
        """
        self._step = self._step + 1 if step is None else step
        if self._off:
            return None
        if not self._is_due(self._step):
            if self._is_due(self._step + 1):
                self._remember()
            return None
        given = {**(scalars or {}), **optimizer_settings(self._subject.optimizers)}
        return self._check([*self._subject.items(), *scalar_items(given, self._subject.everybody)])

    def gradients(self) -> Report | None:
        """Between the reduction of gradients and the optimizer's step. Checks when the step it belongs to is due."""
        if self._off or not self._is_due(self._step + 1):
            return None
        found, compared = self._compare(self._subject.gradients(), self._step + 1)
        self._of_gradients = found
        return self._report(found, compared, self._step + 1) if found else None

    def close(self) -> None:
        """Flush the journal; remove the optimizer hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if not self._off:
            self._journal.flush()
        self._off = True

    def _is_due(self, step: int) -> bool:
        return not self._checked or step % self._rhythm.every == 0

    def _check(self, items: list[Item]) -> Report | None:
        if not self._checked:
            device = next((str(item.tensor.device) for item in items), "none")
            self._journal.start(dist.get_world_size(), device, self._rhythm.every)
        found, compared = self._compare(items, self._step)
        if self._off:
            return None
        self._checked, self._step_ago = True, None
        found = [*self._of_gradients, *found]
        self._of_gradients = []
        if not found:
            self._last_equal = self._step
        return self._report(found, compared, self._step)

    def _compare(self, items: Sequence[Item], step: int) -> tuple[list[Mismatch], list[Compared]]:
        numbers = dict(
            zip((item.key for item in items), checksums([item.tensor for item in items]).read(), strict=True)
        )
        standing = Standing(step, self._updates, self._last_equal, self._earlier())
        # First those who count steps and updates together, whether they hold anything together or not.
        everybody = self._subject.everybody
        sets: dict[Ranks, list[Item]] = ({everybody: []} if len(everybody) > 1 else {}) | by_ranks(items)
        found: list[Mismatch] = []
        try:
            for ranks, held in sets.items():
                found += compare(self._exchange, ranks, held, [numbers[item.key] for item in held], standing)
        except RuntimeError as silence:
            self._give_up(silence)
            return [], []
        self._at_last_check |= numbers
        return found, [Compared(ranks, len(held), sum(item.bytes for item in held)) for ranks, held in sets.items()]

    def _remember(self) -> None:
        """What this rank has a step before a check: whoever has it at the check has not been updated."""
        items = self._subject.items()
        self._step_ago = [item.key for item in items], checksums([item.tensor for item in items])

    def _earlier(self) -> tuple[dict[Key, int], dict[Key, int]]:
        if self._step_ago is None:
            return self._at_last_check, {}
        keys, numbers = self._step_ago
        return self._at_last_check, dict(zip(keys, numbers.read(), strict=True))

    def _report(self, found: Sequence[Mismatch], compared: Sequence[Compared], step: int) -> Report:
        shown, more = tuple(found[:_SHOWN]), max(0, len(found) - _SHOWN)
        report = Report(step, shown, more, tuple(compared), self._last_equal)
        self._journal.tell(report)
        if shown and self._rhythm.raise_on_mismatch:
            raise ReplicasDiffer(report)
        if shown and not self._warned and self._rank == shown[0].ranks[0]:
            self._warned = True
            warnings.warn(str(report), RuntimeWarning, stacklevel=4)
        return report

    def _give_up(self, silence: RuntimeError) -> None:
        self._off = True
        why = str(silence).split(". ")[0]
        self._journal.write("off", {"step": self._step, "why": why})
        warnings.warn(
            f"forkpoint.replicas stops watching at step {self._step}: not all ranks came to the check ({why})",
            RuntimeWarning,
            stacklevel=5,
        )

    def _count_update(self, *_: object) -> None:
        self._updates += 1

    def _before_update(self, *_: object) -> None:
        self.gradients()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
