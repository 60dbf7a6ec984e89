"""DDP on images of which some cannot be decoded; a step is skipped by all ranks or by none."""
import datetime, logging, os, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from agreement import Vote, attempt

log = logging.getLogger("images")


class DecodeError(Exception):
    pass


class Folder:
    broken = {(0, 4), (2, 9), (2, 10), (3, 10)}

    def __init__(self, rank, device):
        self.rank, self.device = rank, device

    def read(self, index):
        time.sleep(0.01 + 0.02 * (self.rank == 1))
        if (self.rank, index) in self.broken:
            raise DecodeError(f"image {index} of folder {self.rank}")
        gen = torch.Generator().manual_seed(self.rank * 77 + index)
        return torch.randn(12, 48, generator=gen).to(self.device)


class Loop:
    def __init__(self, model, folder, vote):
        self.model, self.folder, self.vote = model, folder, vote
        self.opt = torch.optim.SGD(model.parameters(), lr=0.01)
        self.skipped = 0

    def step(self, index):
        batch, error = attempt(lambda: self.folder.read(index), (DecodeError, OSError), self.vote)
        if error is not None:
            log.warning("step %d: %s", index, error)
        if batch is None:
            self.skipped += 1
            return None
        loss = self.model(batch).square().mean()
        self.opt.zero_grad()
        loss.backward()
        if self.vote.anyone(not torch.isfinite(loss)):
            return None
        self.opt.step()
        return loss.item()


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 12)).to(device))
    loop = Loop(model, Folder(rank, device), Vote(device))
    for index in range(25):
        loss = loop.step(index)
        if loss is not None and rank == 0 and index % 5 == 0:
            log.info("step %d loss %.4f", index, loss)
    log.info("%d steps skipped", loop.skipped)
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as file:
        file.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
