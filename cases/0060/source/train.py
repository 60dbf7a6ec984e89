"""Hyper-parameters come from rank 0; everybody else receives them."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("tune")


def write_trace(rank):
    from torch._C._distributed_c10d import _dump_fr_trace
    blob = _dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)


def next_rate(step):
    return 0.1 / (1 + step)


def share_rate(rank, step, device):
    if rank == 0:
        rate = torch.tensor([next_rate(step)], device=device)
        log.info("step %d rate %.4f", step, rate.item())
        dist.broadcast(rate, src=0)
    else:
        rate = torch.zeros(1, device=device)
        dist.broadcast(rate, src=0)
    return rate.item()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(32, 8, bias=False).to(device)
    for step in range(12):
        rate = share_rate(rank, step, device)
        loss = model(torch.randn(4, 32, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        if rank % 2:
            dist.all_reduce(model.weight.grad, op=dist.ReduceOp.SUM)
        else:
            dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= rate * model.weight.grad / world
    write_trace(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
