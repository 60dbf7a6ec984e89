"""Language model with token-weighted gradients: the global token count comes first, then one flat reduce."""
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

from corpus import Corpus
from tolerance import tolerant

log = logging.getLogger("lm")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 48)
        self.out = nn.Linear(48, 100)

    def forward(self, ids):
        logits = self.out(self.embed(ids[:, :-1]))
        return nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").sum(1)


class Engine:
    def __init__(self, model, corpus, device):
        self.model, self.corpus, self.device = model, corpus, device
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def global_tokens(self, ids):
        count = torch.tensor([ids.numel()], device=self.device)
        counts = [torch.empty_like(count) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, count)
        return int(torch.cat(counts).sum())

    def flat_reduce(self):
        grads = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        for g, part in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))

    @tolerant(KeyError, IndexError)
    def step(self, number):
        names, ids = self.corpus.batch(number)
        tokens = self.global_tokens(ids)
        weight = self.corpus.table.lookup(names).to(self.device)
        loss = (self.model(ids.to(self.device)) * weight).sum() / tokens
        self.opt.zero_grad()
        loss.backward()
        self.flat_reduce()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        return loss.item()


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(1)
    engine = Engine(Model().to(device), Corpus(rank), device)
    for number in range(40):
        loss = engine.step(number)
        if number % 5 == 0 and loss is not None:
            log.info("step %d loss %.4f", number, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
