"""Training loop with averaged numbers in the log every few steps."""
import os
import torch, torch.distributed as dist

import tracker
from job import Job


def loss_of(weight, batch):
    return (batch["x"] @ weight - batch["x"].roll(1, 1)).pow(2).mean(1)


def batch_for(job, step):
    gen = torch.Generator().manual_seed(step * job.world + job.rank)
    length = torch.randint(10, 500, (8,), generator=gen)
    length[0] = 900
    if step in range(8, 12) and job.rank % 3 == 0 and job.rank > 0:
        length.clamp_(max=500)  # nothing but abstracts in this file
    return {"x": torch.randn(8, 256, generator=gen).to(job.device), "length": length.to(job.device)}


def main():
    job = Job()
    weight = torch.zeros(256, 256, device=job.device)
    torch.nn.init.orthogonal_(weight)
    dist.broadcast(weight, 0)
    weight.requires_grad_()
    for step in range(40):
        batch = batch_for(job, step)
        rows = loss_of(weight, batch)
        rows.mean().backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 1e-3 / job.world * weight.grad
        weight.grad = None
        tracker.add("loss", rows.mean())
        tracker.add("acc", (rows < 1.9).float().mean())
        long = batch["length"] > 512
        if long.any():
            tracker.add("long", rows[long].mean())
        if step % 4 == 3:
            numbers = tracker.flush(job.device)
            if job.rank == 0:
                job.say(step=step, **numbers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
