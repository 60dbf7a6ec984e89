"""Prompts with the number of tokens after which each answer is complete."""
import torch


class PromptSet:
    def __init__(self, rank, width, device):
        self.rank, self.width, self.device = rank, width, device
        self.turn = 0

    def next_batch(self):
        length = torch.tensor([40, 25, 33, 28])
        if self.rank == 0 and self.turn == 2:
            length = torch.tensor([2, 5, 3, 4])  # yes-or-no questions
        self.turn += 1
        return torch.ones(len(length), self.width, device=self.device) * 0.1, length
