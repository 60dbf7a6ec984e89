"""Forward-only distillation pipeline of four stages, resumed from a former run."""
import datetime, logging, os
import torch, torch.distributed as dist
from reporting import Reporter, read_journal
from stage import Stage


def scale_norm(stage):
    norm = stage.layer.weight.detach().square().sum().reshape(1)
    dist.all_reduce(norm)
    with torch.no_grad():
        stage.layer.weight *= 1.0 - 1e-4 * torch.tanh(norm)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    stage = Stage(rank, world, device)
    reporter = Reporter(stage, every=5, journal=read_journal(rank))
    for step in range(20):
        loss = stage.run(micro_batches=4)
        reporter.report(step, loss)
        scale_norm(stage)
    if device.type == "cuda":
        torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
