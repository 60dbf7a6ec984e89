"""Gradual unfreezing: the head first, then more and more of the body."""


class Schedule:
    def __init__(self, model, plan):
        self.model, self.plan = model, plan
        self.active = {"head.weight"}
        self._mark()

    def _mark(self):
        for name, p in self.model.named_parameters():
            p.requires_grad_(name in self.active)

    def advance(self, step):
        """Add the parameters that start to learn at this step."""
        wanted = self.plan.get(step, ())
        fresh = {n for n, _ in self.model.named_parameters() if n.startswith(tuple(wanted))} if wanted else set()
        if fresh - self.active:
            self.active |= fresh
            self._mark()

    def trainable(self):
        lookup = dict(self.model.named_parameters())
        return [(name, lookup[name]) for name in self.active]
