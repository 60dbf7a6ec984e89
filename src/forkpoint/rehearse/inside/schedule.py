"""`--world 512 --fake`: runs one rank alone with a fake process group, and records the collectives it would call, in order.

torch's fake process group communicates nothing, so a rank of a large job can run by itself on this machine. Every collective
is recorded before it is made. Values from other ranks are fake, so reads of them are recorded, too: real values may lead to
other decisions.
"""

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from forkpoint.consensus.refuse import EachCollective
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.model import RunOrder

_KEPT = 256
_UNSIZED = ("alltoall", "barrier")
"""Their sizes may differ by rank, or they have none."""


def pretend(order: RunOrder, rank: int, places: CodePlaces) -> None:
    """Replaces `init_process_group`: it now creates a fake group of `order.world` ranks."""
    calls = _Calls(Path(order.folder) / f"calls_rank_{rank}.jsonl", places)

    def init_process_group(*args: Any, **named: Any) -> None:
        del args, named
        _real(backend="fake", rank=rank, world_size=order.world, store=FakeStore())
        calls.__enter__()

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    _watch_reads(calls)
    _reduce_in_python()


_real = distributed_c10d.init_process_group


class _Calls(EachCollective):
    def __init__(self, path: Path, places: CodePlaces) -> None:
        super().__init__()
        self._file = path.open("w", encoding="utf-8")
        self._places = places
        self._received: deque[Any] = deque(maxlen=_KEPT)
        """Tensors that a collective has written. Kept alive, so that their memory is not reused."""

    def before(self, op: Any, group: dist.ProcessGroup, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = str(op).removesuffix(".default").rpartition("::")[2].rpartition(".")[2].rstrip("_")
        tensors = list(_tensors((*args, *kwargs.values())))
        self._received.extend(t.detach() for t in tensors)
        sizes = [] if any(word in name for word in _UNSIZED) else [[str(t.dtype), list(t.shape)] for t in tensors]
        site = self._places.nearest(sys._getframe(1))  # noqa: SLF001 documented
        self._write(kind="call", op=name, group=dist.get_process_group_ranks(group), sizes=sizes, site=str(site or ""))

    def read(self, tensor: Any) -> None:
        """Records that the program reads a value that would come from other ranks."""
        site = self._places.at(sys._getframe(2))  # noqa: SLF001 documented
        if site is None:
            return
        place = tensor.untyped_storage().data_ptr()
        if any(received.untyped_storage().data_ptr() == place for received in self._received):
            self._write(kind="read", site=str(site))

    def _write(self, **told: Any) -> None:
        self._file.write(json.dumps(told) + "\n")
        self._file.flush()


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _reduce_in_python() -> None:
    """DDP's reducer needs a result from its collective, which the fake group does not return. A hook in Python makes the same
    call without needing one.
    """
    kind: Any = DistributedDataParallel
    original = kind.__init__

    def init(model: Any, *args: Any, **named: Any) -> None:
        original(model, *args, **named)
        model.register_comm_hook(model.process_group, _reduce)

    kind.__init__ = init


def _reduce(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    dist.all_reduce(bucket.buffer(), group=group)
    reduced: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    reduced.set_result(bucket.buffer())
    return reduced


def _watch_reads(calls: _Calls) -> None:
    for name in ("item", "tolist", "__bool__", "__float__", "__int__"):
        original = getattr(torch.Tensor, name)

        def read(tensor: Any, *args: Any, original: Any = original) -> Any:
            calls.read(tensor)
            return original(tensor, *args)

        setattr(torch.Tensor, name, read)
