"""Start of a run: go on from the newest state, or from the beginning."""
import datetime, json, logging, os, pathlib
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("resume")


def newest_state(rank):
    path = pathlib.Path("states") / f"node{rank}" / "newest.json"
    return json.loads(path.read_text()) if path.exists() else None


def agree_on_step(rank, device):
    state = newest_state(rank)
    if state is not None:
        step = torch.tensor([state["step"]], device=device)
        dist.broadcast(step, src=0)
        log.info("resuming at step %d", step.item())
    else:
        step = torch.zeros(1, dtype=torch.long, device=device)
        dist.all_reduce(step, op=dist.ReduceOp.MAX)
        log.info("starting at step %d", step.item())
    return int(step.item())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    first = agree_on_step(rank, device)
    torch.manual_seed(first)
    model = nn.Linear(64, 64).to(device)
    for step in range(first, first + 20):
        loss = model(torch.randn(4, 64, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
    log.info("loss %.4f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
