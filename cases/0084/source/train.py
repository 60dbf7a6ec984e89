"""Four stages; every stage keeps its activations in a pool of fixed size."""
import datetime, os, sys, time
import torch, torch.distributed as dist

from pool import ActivationPool

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "nccl")
DEVICE = torch.device("cuda:0" if BACKEND == "nccl" else "cpu")
MICRO, WIDTH = 4, 64


def say(text):
    print(f"{time.strftime('%H:%M:%S')} stage {RANK}: {text}", flush=True)


def run_micro(weight, pool):
    if RANK == 0:
        x = torch.ones(8, WIDTH, device=DEVICE)
    else:
        x = torch.empty(8, WIDTH, device=DEVICE)
        dist.recv(x, src=RANK - 1)
    kept = pool.keep(x)
    y = torch.tanh(x @ weight)
    if RANK < WORLD - 1:
        dist.send(y, dst=RANK + 1)
    return kept, y


def run_step(step, weight, pool):
    kept = []
    for _ in range(MICRO):
        slot, y = run_micro(weight, pool)
        kept.append(slot)
    for slot in kept:
        pool.release(slot, step)
    return y


def main():
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    weight = torch.eye(WIDTH, device=DEVICE) * 0.9
    pool = ActivationPool(slots=6, sticky_every=RANK == 1)
    for step in range(20):
        try:
            y = run_step(step, weight, pool)
        except MemoryError as error:
            say(f"step {step}: {error}; giving up")
            sys.exit(1)
        if RANK == WORLD - 1:
            say(f"step {step} mean {y.mean().item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
