"""DDP whose main process prepares, evaluates and decides; the others are told."""
import datetime, logging, os, tempfile, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from turns import from_main, main_first

log = logging.getLogger("train")


class Prepared:
    def __init__(self, folder):
        self.path = os.path.join(folder, "table.pt")

    def load(self, rank):
        if not os.path.exists(self.path):
            time.sleep(1.0)
            torch.save(torch.linspace(0, 1, 64), self.path)
            log.info("prepared by %d", rank)
        return torch.load(self.path)


@torch.no_grad()
def evaluate(net, device):
    net.eval()
    gen = torch.Generator().manual_seed(0)
    scores = []
    for _ in range(4):
        time.sleep(0.1)
        scores.append(net(torch.randn(16, 64, generator=gen).to(device)).square().mean().item())
    net.train()
    return sum(scores) / len(scores)


class Decider:
    """Keeps the best score; asked on the main process only."""

    def __init__(self, net, device, patience=2):
        self.net, self.device, self.patience = net, device, patience
        self.best, self.bad = float("inf"), 0

    def stop(self):
        score = evaluate(self.net, self.device)
        better = score < self.best * 0.65
        self.best, self.bad = (score, 0) if better else (self.best, self.bad + 1)
        log.info("score %.4f, %d without progress", score, self.bad)
        return self.bad >= self.patience


def train_epoch(model, opt, table, steps, device):
    for _ in range(steps):
        loss = model(torch.randn(16, 64, device=device) * table).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    folder = from_main(rank, lambda: tempfile.mkdtemp(prefix="prepared_"))
    with main_first(rank):
        table = Prepared(folder).load(rank).to(device)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 32)).to(device))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    decider = Decider(model.module, device)
    for epoch in range(12):
        train_epoch(model, opt, table, 4, device)
        if from_main(rank, decider.stop):
            log.info("stopped after epoch %d", epoch)
            break
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as file:
        file.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
