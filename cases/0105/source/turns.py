"""One process first, the others after it."""
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def main_first(rank):
    if rank != 0:
        dist.barrier()
    try:
        yield
    finally:
        if rank == 0:
            dist.barrier()


def from_main(rank, make):
    """The value that `make` gives on the main process, everywhere."""
    box = [make() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]
