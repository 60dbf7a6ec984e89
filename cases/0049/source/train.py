"""Training on variable-length records; the longest length is shared before each step."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from reader import BadRecord, read

log = logging.getLogger("records")


def all_lengths(n, world, device):
    out = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world)]
    dist.all_gather(out, torch.tensor([n], device=device))
    return max(int(t) for t in out)


def step_once(model, opt, rank, step, world, device):
    length, payload = read(rank, step)
    longest = all_lengths(length, world, device)
    x = torch.zeros(longest, 16, device=device)
    x[:length] = payload()
    loss = model(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    return loss.item()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(16, 48, bias=False).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    done = 0
    for step in range(25):
        try:
            step_once(model, opt, rank, step, world, device)
            done += 1
        except BadRecord:
            pass
    log.info("%d of 25 steps done", done)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
