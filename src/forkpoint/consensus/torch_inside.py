"""The private parts of torch that this package uses, in one place. Tested with 2.11 and 2.13."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed import distributed_c10d as c10d

Given = ParamSpec("Given")
Result = TypeVar("Result")

_NOT_COLLECTIVE = frozenset(
    {"send", "recv_", "recv_any_source_", "isend", "irecv", "batch_p2p_ops", "get_remote_tensors"}
)
"""Ops that take a group but are not collectives: a message concerns only two ranks."""


def outside_graphs(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Breaks the graph here: dynamo would fail at ProcessGroup.allreduce."""
    outside: Any = torch.compiler.disable(function)
    return outside


def device_kinds(group: dist.ProcessGroup) -> list[str]:
    return [device.type for device in group._device_types]  # noqa: SLF001 - get_backend_config says the same as text


def is_outsider(group: object) -> bool:
    """What `new_group` returns on ranks that are not in the new group."""
    return group == dist.GroupMember.NON_GROUP_MEMBER


def sum_options(timeout: timedelta) -> dist.AllreduceOptions:
    options: Any = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    options.timeout = timeout
    return options


def gather_options(timeout: timedelta) -> Any:
    options: Any = c10d.AllgatherOptions()
    options.timeout = timeout
    return options


def groups() -> Iterable[dist.ProcessGroup]:
    """Every group that this process is in."""
    return tuple(c10d._world.pg_map)  # noqa: SLF001 - there is no public list


def sequence_number(group: Any) -> int | None:
    """How many collectives the group has issued. None: its backend does not count."""
    try:
        return group._get_sequence_number_for_group()  # noqa: SLF001 - there is no public counter
    except RuntimeError:
        return None


@cache
def group_argument(op: Any) -> tuple[int, str] | None:
    """Where an op that is a collective takes its group: (position, name)."""
    if not isinstance(op, OpOverload) or op._opname in _NOT_COLLECTIVE:  # noqa: SLF001 - an op says its name nowhere else
        return None
    names = [argument.name for argument in op._schema.arguments]  # noqa: SLF001 - nor its arguments
    found = [name for name in names if name in {"process_group", "group_name"}]
    return (names.index(found[0]), found[0]) if found else None


def group_of(value: Any) -> dist.ProcessGroup:
    """From what ops take as a group: a name, a group, or a boxed group."""
    if isinstance(value, str):
        resolve: Any = c10d._resolve_process_group  # noqa: SLF001 - only there
        return resolve(value)
    return value if isinstance(value, dist.ProcessGroup) else dist.ProcessGroup.unbox(value)
