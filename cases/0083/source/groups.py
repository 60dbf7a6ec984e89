"""Process groups by kind."""
import dataclasses, datetime, logging, os
import torch, torch.distributed as dist


@dataclasses.dataclass
class Groups:
    rank: int
    tp_size: int
    device: torch.device
    tp: object = None
    dp: object = None


def make_groups(tp_size):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    limit = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
    dist.init_process_group(backend, timeout=limit)
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    groups = Groups(rank, tp_size, torch.device("cuda:0" if backend == "nccl" else "cpu"))
    for number in range(world // tp_size):
        members = list(range(number * tp_size, (number + 1) * tp_size))
        group = dist.new_group(members, timeout=limit, group_desc=f"tp_{number}")
        groups.tp = group if rank in members else groups.tp
    for number in range(tp_size):
        members = list(range(number, world, tp_size))
        group = dist.new_group(members, timeout=limit, group_desc=f"dp_{number}")
        groups.dp = group if rank in members else groups.dp
    return groups
