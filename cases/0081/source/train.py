"""Image statistics model; rank 0 writes the state from time to time."""
import datetime, logging, os, tempfile, time
import torch, torch.distributed as dist

log = logging.getLogger("train")


def write_slowly(path, blob, seconds):
    """The shared file system takes its time."""
    with open(path, "wb") as f:
        for start in range(0, len(blob), max(1, len(blob) // 30)):
            f.write(blob[start : start + max(1, len(blob) // 30)])
            f.flush()
            os.fsync(f.fileno())
            time.sleep(seconds / 30)


class Model:
    def __init__(self, device):
        self.weight = torch.zeros(300, 300, device=device)

    def step(self, batch, world):
        grad = batch.T @ (batch @ self.weight - batch) / len(batch)
        dist.all_reduce(grad)
        self.weight -= 0.01 / world * grad
        return grad.norm() / world


def checkpoint(model, step, folder):
    begin = time.monotonic()
    blob = model.weight.cpu().numpy().tobytes()
    write_slowly(os.path.join(folder, f"step{step}.bin"), blob, seconds=3)
    log.info("state of step %d written in %.1f s", step, time.monotonic() - begin)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    model = Model(device)
    gen = torch.Generator().manual_seed(rank)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(30):
            norm = model.step(torch.randn(64, 300, generator=gen).to(device), world)
            if rank == 0 and step % 10 == 9:
                checkpoint(model, step, folder)
        log.info("norm %.4f", norm.item())
        with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
            f.write(torch._C._distributed_c10d._dump_nccl_trace() if backend == "nccl" else torch._C._distributed_c10d._dump_fr_trace())
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
