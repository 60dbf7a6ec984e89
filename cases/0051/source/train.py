"""Training with a short evaluation after every third of the run."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from evaluation import Evaluator

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(32, 32, bias=False).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    evaluator = Evaluator(model, device)
    for step in range(18):
        x = torch.randn(8, 32, device=device)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        opt.step()
        if step % 6 == 5:
            if rank == 0:
                evaluator.report(step)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
