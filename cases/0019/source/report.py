"""What is written to the log while training runs."""
import logging

log = logging.getLogger("report")


def weight_norms(net):
    return {name: p.full_tensor().norm().item() for name, p in net.named_parameters() if name.endswith("weight")}


class Reporter:
    def __init__(self, rank, every):
        self.enabled = rank == 0
        self.every = every

    def after_step(self, step, loss, net):
        if not self.enabled:
            return
        log.info("step %d loss %.4f", step, loss)
        if (step + 1) % self.every == 0:
            for name, norm in weight_norms(net).items():
                log.info("  %s %.4f", name, norm)
