"""Long-running training on machines of different speed."""
import datetime, logging, os, time
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(40, 40).to(device)
    for step in range(100_000):
        loss = model(torch.randn(4, 40, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        time.sleep(0.05 + 0.01 * (rank % 5))
        for p in model.parameters():
            dist.all_reduce(p.grad)
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-3 / world * p.grad
        if step % 100 == 0 and rank == 0:
            log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
