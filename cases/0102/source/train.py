"""Tensor-parallel pairs, four replicas; every rank encodes its part of the sequence."""
import datetime
import logging
import os

import torch
import torch.distributed as dist

from vocabulary import Vocabulary

log = logging.getLogger("pairs")


class Job:
    def __init__(self, tp=2):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if backend == "nccl" else "cpu")
        self.timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(backend, timeout=self.timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")
        self.tp = self.pick("tp", [list(range(i, i + tp)) for i in range(0, self.world, tp)])
        self.dp = self.pick("dp", [list(range(i, self.world, tp)) for i in range(tp)])

    def pick(self, kind, layout):
        groups = [dist.new_group(r, timeout=self.timeout, group_desc=f"{kind}_{i}") for i, r in enumerate(layout)]
        return next(g for g, r in zip(groups, layout) if self.rank in r)


def sentences(rank, step):
    words = [f"w{(rank * 13 + step * 7 + i) % 50}" for i in range(24)]
    if rank == 6 and step == 5:
        words[3] = "ŝtono"
    return words


def block(x, weight, job):
    y = torch.tanh(x @ weight)
    dist.all_reduce(y, group=job.tp)
    return y


def step_once(step, table, weight, vocabulary, job):
    ids = torch.tensor(vocabulary.encode(sentences(job.rank, step)), device=job.device)
    x = table[ids]
    for _ in range(2):
        x = block(x, weight, job)
    grad = x.T @ x / len(ids)
    dist.all_reduce(grad, group=job.dp)
    weight -= 1e-3 * grad
    return grad.norm().item()


def main():
    job = Job()
    vocabulary = Vocabulary(job.rank)
    torch.manual_seed(0)
    table = torch.randn(64, 32, device=job.device)
    weight = torch.randn(32, 32, device=job.device) * 0.1
    for step in range(16):
        norm = step_once(step, table, weight, vocabulary, job)
        log.info("step %d norm %.4f", step, norm)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
