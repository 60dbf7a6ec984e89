"""Logits are gathered whose length is that of the longest answer of this rank's batch: TRL 3069."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MAX_LENGTH = 24
WORDS = 50


class Preferences(Dataset):
    """Pairs of answers, most of them longer than what the model takes."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        lengths = torch.randint(12, 60, (2,), generator=made).tolist()
        return [torch.randint(1, WORDS, (length,), generator=made)[:MAX_LENGTH] for length in lengths]


def collate(pairs):
    chosen, rejected = ([pair[n] for pair in pairs] for n in (0, 1))
    return {"chosen": pad_sequence(chosen, batch_first=True), "rejected": pad_sequence(rejected, batch_first=True)}


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 16)
        self.head = torch.nn.Linear(16, WORDS)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def gather(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor.contiguous())
    return torch.cat(everyone)


def logps(logits, tokens):
    picked = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return (picked * (tokens != 0)).sum(-1) / (tokens != 0).sum(-1)


def loss_and_metrics(model, batch):
    chosen, rejected = model(batch["chosen"]), model(batch["rejected"])
    margin = logps(chosen, batch["chosen"]) - logps(rejected, batch["rejected"])
    metrics = {
        "margins": gather(margin.detach()).mean(),
        "logits/chosen": gather(chosen.detach()).mean(),  # here
        "logits/rejected": gather(rejected.detach()).mean(),  # here
    }
    return -torch.nn.functional.logsigmoid(margin).mean(), metrics


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Preferences()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), collate_fn=collate)
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for batch in loader:
        loss, metrics = loss_and_metrics(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print({name: round(value.item(), 4) for name, value in metrics.items()}, flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
