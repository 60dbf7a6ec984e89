"""Training that waits for its mount before it connects."""
import datetime, logging, os, pathlib, time
import torch, torch.nn as nn, torch.distributed as dist

logging.basicConfig(level="INFO", format="%(asctime)s %(name)s: %(message)s")
log = logging.getLogger("mount")


def wait_for_mount(node):
    path = pathlib.Path("mounts") / node
    while not path.is_dir():
        log.info("%s is not mounted yet", path)
        time.sleep(5)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    wait_for_mount(f"node{rank}")
    log.info("connecting as rank %d of %d", rank, world)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    model = nn.Linear(16, 16)
    for _ in range(10):
        loss = model(torch.randn(2, 16)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
    log.info("loss %.4f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
