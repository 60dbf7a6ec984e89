import time


class Cadence:
    """True once a number of seconds has passed since it was last touched."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.touch()

    def touch(self):
        self.last = time.monotonic()

    def due(self):
        return time.monotonic() - self.last >= self.seconds
