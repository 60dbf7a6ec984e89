"""Two replicas of four shards each."""
import datetime, logging, os
import torch
import torch.distributed as dist


class Mesh:
    def __init__(self, shards=4):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if backend == "nccl" else "cpu")
        timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(backend, timeout=timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.shards, self.replicas = shards, self.world // shards
        for i in range(self.replicas):
            ranks = list(range(i * shards, (i + 1) * shards))
            group = dist.new_group(ranks, timeout=timeout, group_desc=f"shard_{i}")
            self.shard = group if self.rank in ranks else getattr(self, "shard", None)
        for i in range(shards):
            ranks = list(range(i, self.world, shards))
            group = dist.new_group(ranks, timeout=timeout, group_desc=f"replica_{i}")
            self.replica = group if self.rank in ranks else getattr(self, "replica", None)
