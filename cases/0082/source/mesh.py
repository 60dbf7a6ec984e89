"""Eight ranks as two replicas of four parts."""
import datetime, logging, os
import torch, torch.distributed as dist


class Mesh:
    def __init__(self, tp):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if backend == "nccl" else "cpu")
        limit = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(backend, timeout=limit)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.dp_size = self.world // tp
        rows = [list(range(row * tp, row * tp + tp)) for row in range(self.dp_size)]
        columns = [list(range(column, self.world, tp)) for column in range(tp)]
        made = {}
        for kind, lists in (("tp", rows), ("dp", columns)):
            for number, ranks in enumerate(lists):
                group = dist.new_group(ranks, timeout=limit, group_desc=f"{kind}_{number}")
                if self.rank in ranks:
                    made[kind] = group
        self.tp, self.dp = made["tp"], made["dp"]

    def settle(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
