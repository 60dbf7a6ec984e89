"""This process in its job; the log is one JSON object per line."""
import datetime, json, os, time
import torch, torch.distributed as dist


class Job:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if self.backend == "nccl" else "cpu")
        limit = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(self.backend, timeout=limit)
        self.say(event="joined", world=self.world)

    def say(self, **what):
        print(json.dumps({"ts": round(time.time(), 3), "rank": self.rank} | what), flush=True)
