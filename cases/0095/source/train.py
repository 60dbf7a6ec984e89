"""Speech encoder on sharded weights; an epoch is one pass over the clips of the own shard."""
import datetime
import logging
import os

import torch
import torch.distributed as dist

from sampling import Clips, LengthBatches
from sharded import ShardedLinear

log = logging.getLogger("speech")


class Session:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if backend == "nccl" else "cpu")
        timeout = datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20")))
        dist.init_process_group(backend, timeout=timeout)
        logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{self.rank}] %(name)s: %(message)s")


def features(batch, clips, device):
    x = torch.zeros(len(batch), 64)
    for row, clip in enumerate(batch):
        x[row, : int(clips.seconds[clip])] = 1.0
    return x.to(device)


def train_epoch(number, layers, batches, session):
    losses = []
    for batch in batches.epoch(number):
        x = features(batch, batches.clips, session.device)
        weights = []
        for layer in layers:
            weights.append(layer.gather())
            x = torch.tanh(x @ weights[-1])
        loss = x.square().mean()
        grads = torch.autograd.grad(loss, weights)
        for layer, grad in zip(reversed(layers), reversed(grads)):
            layer.scatter(grad)
        losses.append(loss.item())
    return sum(losses) / len(losses)


def summarize(number, loss, session):
    total = torch.tensor([loss, 1.0], device=session.device)
    dist.all_reduce(total)
    log.info("epoch %d loss %.4f", number, (total[0] / total[1]).item())


def main():
    session = Session()
    layers = [ShardedLinear(session.rank, session.world, 64, session.device) for _ in range(2)]
    batches = LengthBatches(Clips(session.rank), rows=12, longest=30.0, seed=5)
    log.info("%d batches per epoch", len(batches))
    for number in range(5):
        loss = train_epoch(number, layers, batches, session)
        summarize(number, loss, session)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
