"""Training with timed sections."""
import contextlib, datetime, logging, os, time
import torch, torch.distributed as dist

log = logging.getLogger("timed")


@contextlib.contextmanager
def section(name, times):
    start = time.perf_counter()
    yield
    torch.cuda.synchronize()
    times[name] = time.perf_counter() - start


def attention(x, rank, step):
    if (rank, step) == (0, 5):
        torch.cuda._sleep(120_000_000_000)
    return torch.softmax(x @ x.T, -1) @ x


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    x = torch.eye(128, device=device)
    for step in range(12):
        times = {}
        with section("attention", times):
            y = attention(x, rank, step)
        with section("reduce", times):
            dist.all_reduce(y)
        x = y / world
        log.info("step %d %s", step, {k: f"{v:.4f}" for k, v in times.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
