"""Decoding on a side stream. The caller gets frames that are ready."""
import time

import torch


class Decoder:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None

    def _entropy_decode(self, step, frames):
        corrupt = self.rank == 1 and step == 6
        if self.stream is None:
            time.sleep(300 if corrupt else 0.001)
        else:
            torch.cuda._sleep(2_000_000_000 * 60 if corrupt else 200_000)
        return frames * 0.5

    def next_frames(self, step):
        if self.stream is None:
            return self._entropy_decode(step, torch.ones(32, 256))
        with torch.cuda.stream(self.stream):
            frames = self._entropy_decode(step, torch.ones(32, 256, device=self.device))
            ready = self.stream.record_event()
        ready.synchronize()
        return frames
