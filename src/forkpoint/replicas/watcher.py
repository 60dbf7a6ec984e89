"""`watch` and `check`: compares replicas while a job trains, and writes a journal of JSON lines per rank."""

import json
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from forkpoint.replicas.checksums import Checksums, checksums, is_comparable
from forkpoint.replicas.compare import Exchange, Key, ReplicaProgress, compare
from forkpoint.replicas.items import (
    Item,
    Ranks,
    Scalar,
    by_ranks,
    gradient_items,
    is_declared,
    model_items,
    optimizer_items,
    optimizer_settings,
    scalar_items,
)
from forkpoint.replicas.report import Compared, Mismatch, ReplicasDiffer, ReplicasError, Report, What

# ---------------------------------------------------------------------------------------------------------------------
# The journal: what was compared, up to which step all was equal, and what was not.

SCHEMA = "forkpoint.replicas/1"
_FOLDER = "FORKPOINT_REPLICAS_DIR"
_EQUAL_EVERY_S = 60.0
"""Seconds between two lines that only say that all is equal."""


def journal_folder(folder: str | None) -> Path:
    """Also for `replicas.forensics`."""
    return Path(folder or os.environ.get(_FOLDER) or "forkpoint-replicas")


class Journal:
    """Written line by line, so that it survives the process."""

    def __init__(self, folder: str | None, rank: int) -> None:
        self._path = journal_folder(folder) / f"replicas_rank_{rank}.jsonl"
        self._rank = rank
        self._said: set[tuple[object, ...]] = set()
        self._equal_at: float | None = None
        self._unwritten: Report | None = None
        self._since: int | None = None

    def start(self, world: int, device: str, every: int) -> None:
        self.write("start", {"world": world, "host": socket.gethostname(), "device": device, "every": every})

    def tell(self, report: Report) -> None:
        if report.equal:
            self._tell_equal(report)
            return
        self.flush()
        for found in report.mismatches:
            place = (found.what, found.tensor, found.ranks, found.odd)
            if place not in self._said:
                self._said.add(place)
                self.write("mismatch", _mismatch(found, report))
        self._since = None

    def flush(self) -> None:
        """Writes the last step at which all was equal, if it is not in the file yet."""
        if self._unwritten is not None:
            self._write_equal(self._unwritten)

    def write(self, record: str, fields: Mapping[str, object]) -> None:
        heading = {"schema": SCHEMA, "record": record, "time": round(time.time(), 3), "rank": self._rank}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(heading | dict(fields)) + "\n")

    def _tell_equal(self, report: Report) -> None:
        if self._since is None:
            self._since = report.step
        self._unwritten = report
        if self._equal_at is None or time.monotonic() - self._equal_at > _EQUAL_EVERY_S:
            self._write_equal(report)

    def _write_equal(self, report: Report) -> None:
        groups = [{"ranks": one.ranks, "tensors": one.tensors, "bytes": one.bytes} for one in report.compared]
        self.write("equal", {"step": report.step, "since": self._since, "groups": groups})
        self._equal_at, self._unwritten = time.monotonic(), None


def _mismatch(found: Mismatch, report: Report) -> dict[str, object]:
    return {
        "step": report.step,
        "ranks": found.ranks,
        "what": found.what,
        "tensor": found.tensor,
        "checksums": {
            str(rank): f"{number % (1 << 64):x}" for rank, number in zip(found.ranks, found.checksums, strict=True)
        },
        "odd": found.odd,
        "kind": found.kind,
        "why": found.why,
        "last_equal": report.last_equal,
        "more": report.more,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Compares replicas every few steps while a job trains; cheap, and silent while all is equal.

_SHOWN = 16
"""Mismatches of one check that are spelled out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched."""

    model: nn.Module | None
    optimizers: tuple[Optimizer, ...]
    tensors: Mapping[str, Tensor]
    everybody: Ranks
    """Ranks that share scalars and tensors without a wrapper."""
    may_differ: tuple[str, ...]

    def items(self) -> list[Item]:
        """Collected again for every check: optimizer state is created late, and tensors may be replaced."""
        local = {n: t.to_local() if isinstance(t, DTensor) else t for n, t in self.tensors.items()}
        found = [Item(What.TENSOR, n, t, self.everybody) for n, t in local.items() if is_comparable(t)]
        if self.model is not None:
            found += model_items(self.model, self.everybody, self.may_differ)
            found += optimizer_items(self.model, self.optimizers, self.everybody)
        return [item for item in found if not is_declared(item.name, self.may_differ)]

    def gradients(self) -> list[Item]:
        found = gradient_items(self.model, self.everybody) if self.model is not None else ()
        return [item for item in found if not is_declared(item.name, self.may_differ)]


class Watch:
    """Made by `replicas.watch`. Every rank of the job calls its methods at the same places."""

    def __init__(
        self, subject: Subject, exchange: Exchange, folder: str | None, *, every: int, gradients: bool, raises: bool
    ) -> None:
        """`gradients`: check them before an update. `raises`: on a mismatch."""
        self._subject = subject
        self._exchange = exchange
        self._every = every
        self._raises = raises
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
        if gradients:
            self._hooks.append(subject.optimizers[0].register_step_pre_hook(self._before_update))

    def step(self, scalars: Mapping[str, Scalar] | None = None, *, step: int | None = None) -> Report | None:
        """Call it once per training step, after the optimizer's. Checks at the first step and then every `every` steps.

        None: not due. `step`: the job's own number, if it does not count from 1 (after a restart from a checkpoint).
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
        """Call it between the reduction of gradients and the optimizer's step. Checks if this step is due."""
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
        return not self._checked or step % self._every == 0

    def _check(self, items: list[Item]) -> Report | None:
        if not self._checked:
            device = next((str(item.tensor.device) for item in items), "none")
            self._journal.start(dist.get_world_size(), device, self._every)
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
        standing = ReplicaProgress(step, self._updates, self._last_equal, self._earlier())
        # First all ranks compare their counts of steps and updates, whether they share tensors or not.
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
        """Checksums one step before a check: a rank that still has them at the check was not updated."""
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
        if shown and self._raises:
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
            f"forkpoint.replicas stops watching at step {self._step}: not all ranks reached the check ({why})",
            RuntimeWarning,
            stacklevel=5,
        )

    def _count_update(self, *_: object) -> None:
        self._updates += 1

    def _before_update(self, *_: object) -> None:
        self.gradients()


EVERY = 100
"""Steps. A check reads parameters and optimizer state twice; AdamW reads and writes them in every step."""
TIMEOUT_S = 300.0
"""How long to wait for the others at a check. After that watching stops."""


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
    """Starts comparing what must be equal. Every rank calls this, and then `step()` in every training step.

    `group`: the ranks that share what has no wrapper: given tensors, plain modules, scalars (None: all ranks).
    `may_differ`: names as patterns (`ema.*`). Call it after the model is wrapped.
    """
    optimizers = _listed(optimizer)
    if model is None and (optimizers or not tensors):
        raise ReplicasError("nothing to watch: give replicas.watch a model (and its optimizer), or tensors= by name")
    if check_gradients and not optimizers:
        raise ReplicasError("check_gradients hooks optimizer.step(): give the optimizer, or call gradients() yourself")
    subject = Subject(model, optimizers, tensors or {}, _everybody(group), tuple(may_differ))
    subject.items()  # raise now, not at the first check, if replicas cannot be derived
    return Watch(subject, Exchange(timeout_s), folder, every=every, gradients=check_gradients, raises=raise_on_mismatch)


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
    """Compares once, now. None: a job of one process, or some rank did not come."""
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
