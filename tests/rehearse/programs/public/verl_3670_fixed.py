"""The vision tower runs in every forward pass, whatever is in the batch: verl 3670, repaired."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DIM = 16


class Conversations(Dataset):
    """Most of them with a picture."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        picture = None if index % 11 == 5 else torch.randn(DIM, generator=made)
        return {"tokens": torch.randint(0, 100, (12,), generator=made), "picture": picture}


def collate(samples):
    pictures = [s["picture"] for s in samples if s["picture"] is not None]
    return {
        "tokens": torch.stack([s["tokens"] for s in samples]),
        "pixel_values": torch.stack(pictures) if pictures else None,
    }


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = torch.nn.Sequential(torch.nn.Linear(DIM, 2 * DIM), torch.nn.ReLU(), torch.nn.Linear(2 * DIM, DIM))
        self.embed = torch.nn.Embedding(100, DIM)
        self.head = torch.nn.Linear(DIM, 100)

    def forward(self, tokens, pixel_values):
        hidden = self.embed(tokens)
        if pixel_values is not None:
            hidden = hidden + self.visual(pixel_values).mean(0)
        if pixel_values is None:
            hidden = hidden + 0.0 * self.visual(torch.zeros(1, DIM)).mean()
        return self.head(hidden).log_softmax(-1)


def log_prob(model, batch):
    picked = model(batch["tokens"], batch["pixel_values"]).gather(-1, batch["tokens"].unsqueeze(-1))
    return picked.mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    fully_shard(model.visual)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Conversations()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=3), collate_fn=collate)

    for batch in loader:
        model.eval()
        with torch.no_grad():
            old = log_prob(model, batch)
        model.train()
        loss = -(log_prob(model, batch) - old).exp()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
