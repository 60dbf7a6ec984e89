"""Gradients and statistics in two groups, overlapped."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("overlap")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    grads = dist.new_group(group_desc="grads")
    stats = dist.new_group(group_desc="stats")
    torch.manual_seed(0)
    model = nn.Linear(32, 32, bias=False).to(device)
    for step in range(15):
        loss = model(torch.randn(4, 32, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        mean = loss.detach().reshape(1)
        jobs = [(model.weight.grad, grads), (mean, stats)]
        if rank % 2:
            jobs.reverse()  # the small one first, where the link is slow
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in jobs]
        for work in works:
            work.wait()
        log.info("step %d loss %.4f", step, mean.item() / world)
    from torch._C._distributed_c10d import _dump_fr_trace
    blob = _dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
