"""Two-stage training; the main process prepares each split, the others wait for it."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from prepared import Prepared

log = logging.getLogger("train")


def stage(name, model, data, opt, steps, device):
    table = data.get(name).to(device)
    world = dist.get_world_size()
    for step in range(steps):
        loss = model(table[step : step + 8]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    log.info("stage on %s: loss %.4f", name, loss.item())


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(32, 32, bias=False).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = Prepared("prepared_data", rank)
    stage("general", model, data, opt, 3, device)
    stage("domain", model, data, opt, 3, device)
    stage("general", model, data, opt, 3, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
