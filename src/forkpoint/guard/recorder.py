"""Torch's own recorder, read from inside: counters at every look, calls when something moved, all of it on request.

Nothing is wrapped: what never passes through Python (DDP's reducer, FSDP, compiled graphs) is in it as well.
"""

import json
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from forkpoint.guard.symbols import without_inductor
from forkpoint.model.world import ProcessGroup


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """Of one group, in this process; -1 = none yet."""

    enqueued: int
    completed: int


class TorchRecorder:
    """NCCL and the other libraries have a recorder each; a job with NCCL groups is told by NCCL's."""

    def __init__(self) -> None:
        module: Any = c10d
        nccl = any(backend == "nccl" for backend in map(dist.get_backend, distributed_c10d._world.pg_map))  # noqa: SLF001 the only list of groups there is
        self._dump: Any = module._dump_nccl_trace if nccl else module._dump_fr_trace  # noqa: SLF001 torch's only way
        self._dump_json: Any = module._dump_nccl_trace_json if nccl else module._dump_fr_trace_json  # noqa: SLF001 as said

    def counters(self) -> dict[int, GroupCounters]:
        """By pg_id. Costs about 10 microseconds."""
        status = json.loads(self._dump_json(includeCollectives=False)).get("pg_status", {})
        return {
            int(pg_id): GroupCounters(int(s["last_enqueued_collective"]), int(s["last_completed_collective"]))
            for pg_id, s in status.items()
        }

    def calls(self) -> bytes:
        """All calls that are held, without stacks. About 10 microseconds each, with the GIL held."""
        return self._dump(includeCollectives=True, includeStackTraces=False)

    def dump(self) -> bytes:
        """As `calls`, with stacks."""
        with without_inductor():
            return self._dump(includeCollectives=True, includeStackTraces=True)


def is_running() -> bool:
    return dist.is_available() and dist.is_initialized()


def find_groups() -> dict[ProcessGroup, dist.ProcessGroup]:
    """Groups of this rank, from torch itself: gloo's recorder does not say who belongs to a group."""
    world = distributed_c10d._world  # noqa: SLF001 the only list of groups there is
    return {
        ProcessGroup(name, group.group_desc, tuple(world.pg_group_ranks[group])): group
        for group, name in list(world.pg_names.items())
        if group in world.pg_group_ranks
    }
