"""A program that fetches a shard asks for a password on its standard input, which nobody types.

Truth, noted before it ran: rank 3, host-stall, the line of `subprocess.run` in `fetch`; the other ranks wait in `dist.all_reduce`.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

ASK = "printf 'Password for shard 5: ' >&2; read -r answer; echo $answer"


def fetch(shard: int, ask: bool) -> int:
    """The size of a shard, as the program that fetches it says; it may ask first."""
    command = ["sh", "-c", ASK] if ask else ["echo", str(shard * 10 + 1)]
    reader, writer = os.pipe()
    try:
        done = subprocess.run(command, stdin=reader, capture_output=True, text=True, check=True)  # here: credentials
    finally:
        os.close(reader)
        os.close(writer)
    return int(done.stdout)


def shards(count: int) -> list[int]:
    """Sizes of this rank's shards; the credentials of rank 3 run out at the sixth."""
    return [fetch(number, ask=dist.get_rank() == 3 and number == 5) for number in range(count)]


def main() -> None:
    """Epochs: fetch, then train on what was fetched."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    weights = torch.zeros(16, device=device)
    for epoch in range(4, 8):
        if epoch == 6:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        sizes = shards(epoch)
        gradient = torch.full((16,), float(sum(sizes)), device=device)
        for _ in range(5):
            dist.all_reduce(gradient)
            weights += gradient / dist.get_world_size()
        print(f"[rank {dist.get_rank()}] epoch {epoch}: {weights.mean().item():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
