"""Training rows in local files. A file is unpacked by whoever creates its lock first."""
import os
import tempfile
import time
from pathlib import Path

import torch


class ShardCache:
    def __init__(self, rank, rows):
        self.folder = Path(tempfile.mkdtemp(prefix=f"shards{rank}_"))
        self.rows, self.loaded, self.data = rows, None, None
        if rank == 3:
            (self.folder / "shard2.lock").write_text("70113\n")  # this node was rebooted during the last run

    def _unpack(self, name):
        lock = self.folder / f"{name}.lock"
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                time.sleep(0.2)
        data = torch.linspace(-1, 1, self.rows * 128).view(self.rows, 128)
        lock.unlink()
        return data

    def batch(self, step):
        wanted, row = divmod(step * 7, self.rows)
        if wanted != self.loaded:
            self.data, self.loaded = self._unpack(f"shard{wanted}"), wanted
        return self.data[row : row + 1].expand(4, -1).contiguous()
