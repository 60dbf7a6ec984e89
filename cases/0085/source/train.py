"""Training with a sharded optimiser; frames are decoded on the device by a stream of their own."""
import datetime, logging, os
import torch, torch.distributed as dist

from decode import Decoder

log = logging.getLogger("video")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    weight = torch.ones(256, 256, device=device)
    dist.broadcast(weight, src=0)
    mine = torch.empty(256 // world, 256, device=device)
    decoder = Decoder(rank, device)
    for step in range(14):
        frames = decoder.next_frames(step)
        grad = frames.T @ (frames @ weight) / len(frames)
        dist.reduce_scatter_tensor(mine, grad)
        part = weight.chunk(world)[rank] - 1e-4 / world * mine
        dist.all_gather_into_tensor(weight, part.contiguous())
        log.info("step %d weight %.5f", step, weight.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
