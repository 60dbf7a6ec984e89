"""Retrieval training: the first rank indexes the corpus, then all start."""
import datetime, logging, os, time
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("retrieval")


def build_index(documents):
    """A tenth of a second per document."""
    index = []
    for i in range(documents):
        time.sleep(0.1)
        index.append(hash(str(i)) % 4096)
    return index


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    seed = torch.tensor([1234], device=device)
    dist.broadcast(seed, src=0)
    torch.manual_seed(seed.item())
    if rank == 0:
        index = build_index(documents=207)
        log.info("index of %d documents ready", len(index))
    size = torch.tensor([len(index) if rank == 0 else 0], device=device)
    dist.all_reduce(size)
    model = nn.Linear(64, 64).to(device)
    for step in range(400):
        loss = model(torch.randn(8, 64, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        time.sleep(0.05)
    log.info("done with %d documents", int(size.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
