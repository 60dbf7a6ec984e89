"""Process group, device and logger."""
import datetime, logging, os
import torch
import torch.distributed as dist


def start():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
    dist.init_process_group(backend, timeout=timeout)
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    return rank, world, device, logging.getLogger("train")
