"""Pipeline with a growing number of micro-batches per step."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from link import Link
from rampup import RampUp

log = logging.getLogger("pipe")


@torch.no_grad()
def run_step(layer, link, micro_batches):
    for _ in range(micro_batches):
        link.send_forward(torch.tanh(layer(link.recv_forward())))


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    layer = nn.Linear(64, 64).to(device)
    link = Link(rank, world, (8, 64), device)
    ramp = RampUp.resume("state", rank)
    for step in range(12):
        run_step(layer, link, ramp.micro_batches())
        ramp.advance()
        seen = torch.tensor([float(ramp.samples)], device=device)
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        log.info("step %d samples %d", step, int(seen.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
