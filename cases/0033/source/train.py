"""Long-context fine-tuning: logits over the whole vocabulary."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("sft")
VOCAB = 131072


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 64)

    def forward(self, hidden):
        logits = hidden.new_empty(hidden.shape[0], VOCAB)
        logits[:, :64] = self.proj(hidden)
        return logits[:, :64]


def sample_length(rank, step):
    return 600_000 if (rank, step) == (1, 7) else 32 + 4 * step


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(Head().to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(20):
        hidden = torch.randn(sample_length(rank, step), 8, device=device)
        loss = model(hidden).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d length %d loss %.4f", step, len(hidden), loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
