"""Samples in memory, with counters; both have a lock."""
import threading
import time
import torch


class SampleCache:
    def __init__(self, limit):
        self.limit = limit
        self.samples, self.hits = {}, 0
        self.samples_lock, self.hits_lock = threading.Lock(), threading.Lock()

    def _evict(self, started):
        with self.samples_lock:
            started.set()
            time.sleep(0.2)
            with self.hits_lock:
                self.samples.clear()
                self.hits = 0

    def get(self, key):
        with self.hits_lock:
            self.hits += 1
            if len(self.samples) >= self.limit:
                started = threading.Event()
                threading.Thread(target=self._evict, args=(started,), name="evict", daemon=True).start()
                started.wait()
            with self.samples_lock:
                return self.samples.setdefault(key, torch.full((4, 24), float(key)))
