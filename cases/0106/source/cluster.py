"""Groups of a job on two nodes: everyone, the node, and the leaders of the nodes."""
import datetime, logging, os
import torch
import torch.distributed as dist


class Cluster:
    def __init__(self, per_node=4):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if self.backend == "nccl" else "cpu")
        timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(self.backend, timeout=timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.node, self.leader = self.rank // per_node, self.rank // per_node * per_node
        nodes = [list(range(i, i + per_node)) for i in range(0, self.world, per_node)]
        groups = [dist.new_group(r, timeout=timeout, group_desc=f"node_{i}") for i, r in enumerate(nodes)]
        self.local = groups[self.node]
        self.leaders = dist.new_group([r[0] for r in nodes], timeout=timeout, group_desc="leaders")

    def sum_over_all(self, value):
        """Within the node, then between leaders, then back."""
        dist.reduce(value, dst=self.leader, group=self.local)
        if self.rank == self.leader:
            dist.all_reduce(value, group=self.leaders)
        dist.broadcast(value, src=self.leader, group=self.local)
        return value

    def agree(self, number, op):
        value = torch.tensor([number], device=self.device)
        dist.all_reduce(value, op=op)
        return int(value.item())

    def told_by_main(self, flag):
        value = torch.tensor([int(flag)], device=self.device)
        dist.broadcast(value, src=0)
        return bool(value.item())
