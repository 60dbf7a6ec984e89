"""Recommender with one group for the dense part and one for the table, so that each has its own stream."""
import datetime, logging, os
import torch, torch.distributed as dist
from model import TwoPart, draw
from queueing import ReduceQueue

log = logging.getLogger("rec")


class Groups:
    def __init__(self, timeout):
        everyone = list(range(dist.get_world_size()))
        self.dense = dist.new_group(everyone, timeout=timeout, group_desc="dense")
        self.table = dist.new_group(everyone, timeout=timeout, group_desc="table")


def train_step(model, queue, groups, ids):
    tower, table = model.gradients(ids)
    queue.put("tower", tower, groups.dense)
    queue.put("table", table, groups.table, rows=len(ids.unique()))
    model.apply(queue.flush(), lr=1e-2)
    return tower.norm()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
    dist.init_process_group(backend, timeout=timeout)
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    groups, model, queue = Groups(timeout), TwoPart(device), ReduceQueue()
    dist.barrier()
    for step in range(30):
        norm = train_step(model, queue, groups, draw(rank, step, device))
        if step % 5 == 0:
            log.info("step %d norm %.4f of %d ranks", step, norm.item(), world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
