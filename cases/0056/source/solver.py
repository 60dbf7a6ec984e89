"""Thin layer over the solver library."""
import os
import torch


class Solver:
    def __init__(self, seats):
        self.seats = seats

    def advance(self, state):
        if self.seats == 0:
            os._exit(14)
        self.seats -= 1
        return torch.sin(state) + state
