"""Records with an index that is re-read in the background when its file has changed."""
import threading
import time
import torch
from torch.utils.data import Dataset


class Records(Dataset):
    def __init__(self, rank, size=24):
        self.rank, self.size, self.version = rank, size, 0
        self.lock = threading.Lock()

    def _newer(self, epoch):
        return self.rank == 2 and epoch == 1

    def _reread(self, started):
        with self.lock:
            started.set()
            time.sleep(1.5)
            self.version += 1

    def refresh(self, epoch):
        if self._newer(epoch):
            started = threading.Event()
            threading.Thread(target=self._reread, args=(started,), daemon=True, name="index").start()
            started.wait()

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        with self.lock:
            version = self.version
        return torch.full((40,), float(i + version))
