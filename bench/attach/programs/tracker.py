"""Metrics go to a server: it takes rank 0's request and does not answer."""

import json
import os
import socket
import sys
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


class Tracker:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/api/log"

    def log(self, step: int, loss: float) -> None:
        told = json.dumps({"step": step, "loss": loss}).encode()
        urllib.request.urlopen(self.address, told).read()  # noqa: S310 - its own address  # here: tracker


def main() -> None:
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    server = socket.create_server(("127.0.0.1", 0)) if rank == 0 else None
    for step in range(9):
        loss = torch.full((4,), 1.0 / (1 + step), device=DEVICE)
        dist.all_reduce(loss)
        value = loss.mean().item()
        if step == 5:
            Path(sys.argv[1], f"begun_{rank}").touch()
            if server is not None:
                Tracker(server.getsockname()[1]).log(step, value)  # here: tracker
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
