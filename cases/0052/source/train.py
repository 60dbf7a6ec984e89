"""Training for a fixed time, as queues with a wall limit ask for."""
import datetime, logging, os, time
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("timed")


class TimeBudget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


def prepare(rank):
    files = [12, 11, 12, 1][rank]
    time.sleep(0.2 * files)
    return files


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    log.info("%d files prepared", prepare(rank))
    budget = TimeBudget(seconds=6.0)
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False).to(device)
    step = 0
    while budget.left() > 0:
        loss = model(torch.randn(4, 64, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 1e-3 * model.weight.grad
        time.sleep(0.25)
        step += 1
    log.info("time is over after %d steps, loss %.4f", step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
