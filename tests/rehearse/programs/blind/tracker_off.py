"""A rank that cannot reach the tracking service stops tracking, and with it the reduction of its metrics."""

import socket
import threading

import torch
import torch.distributed as dist
from torch import nn


class Tracker:
    def __init__(self, port):
        self.port, self.enabled = port, True

    def log(self, row):
        for _ in range(2):
            connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                connection.sendto(repr(row).encode(), ("127.0.0.1", self.port))
                return
            except OSError:
                pass
            finally:
                connection.close()
        self.enabled = False


def serve(server):
    while True:
        server.recv(1 << 16)


def main():
    dist.init_process_group("gloo")
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    tracker = Tracker(server.getsockname()[1])
    torch.manual_seed(3)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD([model.weight], lr=0.01)
    draw = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, 13):
        optimizer.zero_grad()
        loss = model(torch.rand(4, 8, generator=draw)).square().mean()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
        if tracker.enabled and step % 2 == 0:  # here
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            tracker.log({"step": step, "loss": float(mean)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
