"""A frozen base with small trainable adapters."""
from torch import nn

RECIPE = {"train": ["down", "up", "scale"]}
NODE_RECIPE = {2: {"train": ["down", "up"]}}  # recipes found in the home directory of a node


class Tuned(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down = nn.Linear(width, 8)
        self.up = nn.Linear(8, width)
        self.scale = nn.LayerNorm(width)

    def prepare(self, rank):
        names = NODE_RECIPE.get(rank, RECIPE)["train"]
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.split(".")[0] in names)

    def forward(self, x):
        return self.scale(self.base(x) + self.up(self.down(x)))
