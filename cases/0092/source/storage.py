"""What goes to disk: full snapshots of the policy and overflow of the replay buffer."""
import logging
import os
import tempfile

import torch
import torch.distributed as dist

from cadence import Cadence

log = logging.getLogger("storage")


class Storage:
    def __init__(self, rank, every):
        self.rank = rank
        self.folder = tempfile.mkdtemp(prefix=f"policy_{rank}_")
        self.cadence = Cadence(every)

    def _write(self, name, value):
        torch.save(value, os.path.join(self.folder, name))
        self.cadence.touch()

    def spill(self, rows, step):
        self._write(f"replay_{step}.pt", [r.cpu() for r in rows])
        log.info("step %d: %d rows of replay on disk", step, len(rows))

    def snapshot(self, shard, step):
        if not self.cadence.due():
            return False
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard)
        self._write(f"policy_{step}.pt", torch.cat(parts).cpu())
        log.info("step %d: snapshot", step)
        return True
