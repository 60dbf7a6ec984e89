"""Tensor and data parallel training, four by two; some ranks have slower storage."""
import logging, os, time
import torch, torch.distributed as dist
from layout import Layout

log = logging.getLogger("train")


def column_row(x, a, b, layout):
    h = torch.relu(x @ a)
    y = h @ b
    dist.all_reduce(y, group=layout.tp)
    return y


def main():
    layout = Layout(tp=4)
    torch.manual_seed(layout.rank)
    a = torch.randn(64, 32, device=layout.device) * 0.1
    b = torch.randn(32, 64, device=layout.device) * 0.1
    for step in range(14):
        x = torch.ones(8, 64, device=layout.device)
        time.sleep(0.02 * (layout.rank % 3))
        for _ in range(2):
            x = torch.tanh(column_row(x, a, b, layout))
        grads = torch.stack([a.T, b]) * x.mean()
        dist.all_reduce(grads, group=layout.dp)
        a -= 1e-3 * grads[0].T
        b -= 1e-3 * grads[1]
        if step % 7 == 6:
            norm = grads.norm().reshape(1)
            dist.all_reduce(norm)
            log.info("step %d norm %.4f", step, norm.item())
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if layout.backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{layout.rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
