"""When to end a run."""


class Plateau:
    def __init__(self, patience, margin):
        self.patience, self.margin = patience, margin
        self.best, self.bad = float("inf"), 0

    def update(self, value):
        if value < self.best - self.margin:
            self.best, self.bad = value, 0
        else:
            self.bad += 1

    @property
    def exhausted(self):
        return self.bad >= self.patience


class RunState:
    def __init__(self, max_rounds, plateau):
        self.round, self.max_rounds, self.plateau = 0, max_rounds, plateau

    @property
    def finished(self):
        return self.round >= self.max_rounds or self.plateau.exhausted

    def close_round(self, value):
        self.plateau.update(value)
        self.round += 1
