"""Samples of a producer thread."""
import logging
import queue
import threading

log = logging.getLogger("samples")
FILES = ["a", "b", "c", "d"]


class Samples:
    def __init__(self, rank):
        self.queue = queue.Queue(maxsize=4)
        self.unreadable = {"c"} if rank == 15 else set()
        threading.Thread(target=self._produce, daemon=True, name="producer").start()

    def _produce(self):
        for name in FILES * 100:
            if name in self.unreadable:
                log.error("cannot read %s", name)
                return
            for i in range(2):
                self.queue.put(float(i + 1))

    def next(self):
        return self.queue.get()
