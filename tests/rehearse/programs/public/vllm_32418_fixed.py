"""A rank waits for the lock: vLLM 32418, repaired."""

import threading
import time

import torch
import torch.distributed as dist

LAYERS = 6


class Balancer:
    """Moves the experts of one layer after the other: a thread transfers, the main loop commits."""

    def __init__(self):
        self.group = dist.new_group()
        self.buffer_lock = threading.Lock()
        self.ready = 0
        self.layer = 0
        self.weights = [torch.full((16,), float(dist.get_rank())) for _ in range(LAYERS)]
        self.buffer = torch.zeros(16)
        self.thread = threading.Thread(target=self.transfer, daemon=True)
        self.thread.start()

    def transfer(self):
        while self.layer < LAYERS:
            if self.ready:
                time.sleep(0.001)
                continue
            self.buffer_lock.acquire()
            try:
                if self.layer >= LAYERS:
                    break
                everyone = [torch.empty(16) for _ in range(dist.get_world_size())]
                dist.all_gather(everyone, self.weights[self.layer], group=self.group)
                self.buffer.copy_(everyone[(dist.get_rank() + 1) % len(everyone)])
                self.ready = 1
            finally:
                self.buffer_lock.release()

    def all_ranks_ready(self):
        flag = torch.tensor([self.ready])
        dist.all_reduce(flag)
        return int(flag.item()) == dist.get_world_size()

    def move_to_workspace(self):
        self.buffer_lock.acquire()
        try:
            self.weights[self.layer].copy_(self.buffer)
            self.layer += 1
            self.ready = 0
        finally:
            self.buffer_lock.release()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    balancer = Balancer()
    for _step in range(400):
        with torch.no_grad():
            model(torch.randn(8, 16))
        time.sleep(0.01)
        if balancer.layer < LAYERS and balancer.all_ranks_ready():
            balancer.move_to_workspace()
    balancer.thread.join()
    dist.barrier()
    dist.destroy_process_group()


main()
