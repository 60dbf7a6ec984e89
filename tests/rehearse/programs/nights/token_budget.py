"""Policy update with micro-batches that are packed by number of tokens (FSDP2)."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.rnn import pad_sequence

VOCAB = 96


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, hidden):
        return hidden + self.out(torch.relu(self.mix(self.norm(hidden))))


class Policy(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def prepare_rollouts(folder, rank, steps, per_step):
    """What the inference servers leave behind: one file of answers per rank."""
    path = folder / f"rollouts_{rank}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = torch.Generator().manual_seed(100 + rank)
        with path.open("w") as out:
            for _ in range(steps * per_step):
                length = int(torch.randint(20, 29, (1,), generator=draw))
                tokens = torch.randint(1, VOCAB, (length,), generator=draw).tolist()
                advantage = float(torch.randn(1, generator=draw))
                out.write(json.dumps({"tokens": tokens, "advantage": advantage}) + "\n")
    return path


def read_rollouts(path, per_step):
    batch = []
    with path.open() as lines:
        for line in lines:
            batch.append(json.loads(line))
            if len(batch) == per_step:
                yield batch
                batch = []


def split_by_tokens(batch, budget):
    """Micro-batches of at most `budget` tokens, samples kept in balance."""
    lengths = [len(sample["tokens"]) for sample in batch]
    count = max(1, -(-sum(lengths) // budget))  # here
    groups = [[] for _ in range(count)]
    totals = [0] * count
    for index in sorted(range(len(batch)), key=lambda i: -lengths[i]):
        smallest = totals.index(min(totals))
        groups[smallest].append(batch[index])
        totals[smallest] += lengths[index]
    return groups


def policy_loss(model, group, device):
    tokens = pad_sequence([torch.tensor(s["tokens"]) for s in group], batch_first=True).to(device)
    advantages = torch.tensor([s["advantage"] for s in group], device=device)
    logits = model(tokens[:, :-1])
    log_probs = torch.log_softmax(logits.float(), -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    mask = tokens[:, 1:] != 0
    return -(log_probs * mask * advantages[:, None]).sum() / mask.sum().clamp(min=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--per-step", type=int, default=8)
    parser.add_argument("--token-budget", type=int, default=128)
    parser.add_argument("--rollouts", type=Path, default=Path("rollouts"))
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(7)
    model = Policy().to(device)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    path = prepare_rollouts(args.rollouts, rank, args.steps, args.per_step)
    for step, batch in enumerate(read_rollouts(path, args.per_step)):
        groups = split_by_tokens(batch, args.token_budget)
        optimizer.zero_grad()
        for group in groups:  # here
            loss = policy_loss(model, group, device) / len(groups)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0:
            print(f"step {step} micro-batches {len(groups)} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
