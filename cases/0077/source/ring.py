"""Who passes its block to whom."""
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("ring")


def probe_milliseconds(rank, step):
    """Delay to each other rank as seen from here."""
    delay = {other: 1.0 + 0.1 * ((other - rank) % 4) for other in range(4)}
    if step >= 4 and rank == 2:
        delay[3] = 2.5
    return delay


class Ring:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self.after, self.before = (rank + 1) % size, (rank - 1) % size

    def before_step(self, step):
        """From time to time look whether there is a nearer rank to hand over to."""
        if step % 2 == 0:
            delay = probe_milliseconds(self.rank, step)
            nearest = min((r for r in delay if r not in (self.rank, self.before)), key=delay.get)
            if nearest != self.after:
                log.info("handing over to %d (%.1f ms) instead of %d", nearest, delay[nearest], self.after)
                self.after = nearest

    def pass_on(self, block):
        incoming = torch.empty_like(block)
        pair = [
            dist.P2POp(dist.isend, block, self.after),
            dist.P2POp(dist.irecv, incoming, self.before),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        return incoming
