"""Skips and stops are agreed on before anybody acts on them."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("train")


def anywhere(flag, device):
    t = torch.tensor([float(flag)], device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(24, 24, bias=False).to(device)
    for step in range(40):
        x = torch.randn(4, 24, device=device)
        if (rank, step) in {(1, 3), (3, 11)}:
            x[0, 0] = float("nan")
        loss = model(x).pow(2).mean()
        if anywhere(not torch.isfinite(loss), device):
            log.info("step %d left out by all", step)
            continue
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        if anywhere(rank == 2 and step == 25, device):
            log.info("stopping together after step %d", step)
            break
    from torch._C._distributed_c10d import _dump_fr_trace
    blob = _dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
