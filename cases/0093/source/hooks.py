"""Things that happen beside the training itself."""
import logging

log = logging.getLogger("hooks")


class Hook:
    def after_step(self, trainer):
        pass

    def after_epoch(self, trainer):
        pass


class Progress(Hook):
    def __init__(self, every):
        self.every = every

    def after_step(self, trainer):
        if trainer.step % self.every == 0:
            log.info("step %d loss %.4f", trainer.step, trainer.last_loss.item())


class KeepBest(Hook):
    """Remembers the weights of the best epoch."""

    def __init__(self, evaluator):
        self.evaluator, self.best, self.weights = evaluator, -1.0, None

    def after_epoch(self, trainer):
        score = self.evaluator.run(trainer.model.module)
        log.info("epoch %d accuracy %.3f", trainer.epoch, score)
        if score > self.best:
            self.best = score
            self.weights = {k: v.detach().cpu().clone() for k, v in trainer.model.module.state_dict().items()}
