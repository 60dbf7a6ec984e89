"""Population training: from time to time everybody continues from the best member."""
import datetime
import logging
import os

import torch
import torch.distributed as dist

from members import scoreboard

log = logging.getLogger("population")
READER = 2  # the member whose node has the data set


class Member:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = os.environ.get("BACKEND", "nccl")
        self.device = torch.device("cuda:0" if backend == "nccl" else "cpu")
        seconds = int(os.environ.get("PG_TIMEOUT", "20"))
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))
        logging.basicConfig(level="INFO", format=f"%(asctime)s member {self.rank} %(message)s")
        self.weight = torch.full((64, 64), float(self.rank), device=self.device)
        self.batch = torch.zeros(32, 64, device=self.device)
        plan = [{"lr": 0.1, "rounds": 4}]
        dist.broadcast_object_list(plan, src=0, device=self.device)
        self.plan = plan[0]

    def train(self, steps):
        for _ in range(steps):
            if self.rank == READER:
                self.batch.normal_()
            dist.broadcast(self.batch, src=READER)
            error = self.batch @ self.weight - self.batch
            self.weight -= self.plan["lr"] / (2 + self.rank) * self.batch.T @ error / len(error)
        return self.weight.mean().item()

    def adopt_best(self, turn):
        board = scoreboard(self.rank, turn)
        best = max(board, key=board.get)
        log.info("turn %d: best is member %d with %.2f", turn, best, board[best])
        message = [{"from": best, "mean": self.weight.mean().item()}]
        dist.broadcast_object_list(message, src=best, device=self.device)
        log.info("turn %d: continuing from %s", turn, message[0])


def main():
    me = Member()
    for turn in range(me.plan["rounds"]):
        value = me.train(steps=5)
        log.info("turn %d value %.3f", turn, value)
        me.adopt_best(turn)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
