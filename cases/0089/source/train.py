"""Training with a thread that shares the load of every rank."""
import datetime, logging, os, time
import torch, torch.nn as nn, torch.distributed as dist
from load import LoadSharing

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False).to(device)
    dist.broadcast(model.weight.data, src=0)
    load = LoadSharing(rank, world)
    load.start()
    for step in range(2000):
        loss = model(torch.randn(8, 64, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 1e-4 * model.weight.grad / world
        time.sleep(0.004 * (1 + rank))
        if step % 50 == 0:
            log.info("step %d loss %.4f, loads %s", step, loss.item(), load.loads)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
