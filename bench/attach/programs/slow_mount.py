"""A hyperparameter file that is read again every few steps, from a mount that does not answer (a FIFO that nobody writes).

Truth, noted before it ran: rank 0, host-stall, the line of `path.read_text()` in `reload`; the others wait in `dist.broadcast_object_list`.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer


def reload(path: Path) -> dict[str, float]:
    """The settings as they are on the mount now."""
    return json.loads(path.read_text())  # here: slow_mount


def agree_on_settings(path: Path) -> dict[str, float]:
    """Rank 0 reads, everybody takes what it read."""
    settings: list[dict[str, float]] = [{}]
    if dist.get_rank() == 0:
        settings[0] = reload(path)
    dist.broadcast_object_list(settings, src=0)
    return settings[0]


def train(path: Path, device: torch.device) -> None:
    """Thirty steps, settings every fifth; the mount goes away at step 14."""
    weights, settings = torch.ones(32, device=device), {"decay": 1.0}
    for step in range(30):
        if step == 14:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        if step == 14 and dist.get_rank() == 0:
            path.unlink()
            os.mkfifo(path)
        if step % 5 == 0:
            settings = agree_on_settings(path)
            print(f"[rank {dist.get_rank()}] step {step} settings {settings}", flush=True)
        dist.all_reduce(weights)
        weights *= settings["decay"] / dist.get_world_size()


def main() -> None:
    """Write the settings, train."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    server = _WorkerServer("::", 0) if "DEBUG_SERVER" in os.environ else None  # as start_debug_server, without its page
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.json")
        path.write_text(json.dumps({"decay": 0.99}))
        train(path, torch.device("cuda:0" if backend == "nccl" else "cpu"))
    dist.destroy_process_group()
    del server


if __name__ == "__main__":
    main()
