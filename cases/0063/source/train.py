"""Training with per-key statistics summed over the ranks."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("train")


def reduce_changed(sums, changed):
    out = {}
    for key in sorted(changed):
        out[key] = sums[key].clone()
        dist.all_reduce(out[key])
    changed.clear()
    return out


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(64, 16, bias=False).to(device)
    sums = {"loss": torch.zeros(1), "norm": torch.zeros(16), "tokens": torch.zeros(500), "load": torch.zeros(8)}
    changed = set()
    for step in range(20):
        loss = model(torch.randn(8, 64, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        for key in sums:
            sums[key] += loss.item()
            changed.add(key)
        if step % 5 == 4:
            log.info("step %d loss %.4f", step, reduce_changed(sums, changed)["loss"].item() / world)
    from torch._C._distributed_c10d import _dump_fr_trace
    blob = _dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
