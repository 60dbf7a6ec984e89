"""Two stages, two replicas: transfers along the pipeline, reduces across replicas."""
import datetime, logging, os
import torch, torch.distributed as dist


class Grid:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if self.backend == "nccl" else "cpu")
        timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(self.backend, timeout=timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.stage, self.replica = divmod(self.rank, 2)
        first = dist.new_group([0, 1], timeout=timeout, group_desc="dp_first")
        last = dist.new_group([2, 3], timeout=timeout, group_desc="dp_last")
        self.dp = last if self.stage else first
        self.next, self.prev = self.rank + 2, self.rank - 2
