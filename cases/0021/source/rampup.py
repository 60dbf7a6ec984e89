"""Batch size ramp-up: micro-batches grow with the samples seen so far."""
import json
import pathlib

MICRO = 8


class RampUp:
    def __init__(self, samples):
        self.samples = samples

    @classmethod
    def resume(cls, folder, rank):
        path = pathlib.Path(folder) / f"stage_{rank}.json"
        return cls(json.loads(path.read_text())["samples"])

    def micro_batches(self):
        return 2 + self.samples // 160

    def advance(self):
        self.samples += self.micro_batches() * MICRO
