"""Simulation with a licensed solver on every rank."""
import datetime, logging, os
import torch, torch.distributed as dist
from solver import Solver

log = logging.getLogger("sim")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    solver = Solver(seats=3 if rank == 0 else 50)
    state = torch.full((32,), float(rank), device=device)
    for step in range(20):
        state = solver.advance(state)
        dist.all_reduce(state)
        state /= world
        log.info("step %d mean %.4f", step, state.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
