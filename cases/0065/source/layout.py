"""Tensor-parallel and data-parallel groups of one job."""
import datetime, logging, os
import torch
import torch.distributed as dist


class Layout:
    def __init__(self, tp):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend = os.environ.get("BACKEND", "gloo")
        self.device = torch.device("cuda:0" if self.backend == "nccl" else "cpu")
        self.timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(self.backend, timeout=self.timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.tp_size, self.dp_size = tp, self.world // tp
        self.tp = self._groups("tp", [list(range(i * tp, (i + 1) * tp)) for i in range(self.dp_size)])
        self.dp = self._groups("dp", [list(range(i, self.world, tp)) for i in range(tp)])

    def _groups(self, kind, members):
        mine = None
        for i, ranks in enumerate(members):
            group = dist.new_group(ranks, timeout=self.timeout, group_desc=f"{kind}_{i}")
            if self.rank in ranks:
                mine = group
        return mine
