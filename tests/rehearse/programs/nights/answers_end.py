"""PPO on a toy model: sample answers with the sharded policy, then train on them (FSDP2)."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

VOCAB = 64
END = 0


class Actor(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)) for _ in range(depth))
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden = self.embed(tokens).cumsum(1)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.head(hidden)


class Prompts(torch.utils.data.Dataset):
    def __init__(self, path, count):
        if not path.exists():
            draw = torch.Generator().manual_seed(3)
            part = path.with_suffix(f".{os.getpid()}")
            torch.save(torch.randint(1, VOCAB, (count, 6), generator=draw), part)
            part.rename(path)
        self.rows = torch.load(path, weights_only=True)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@torch.no_grad()
def sample(actor, prompts, max_length, temperature):
    tokens = prompts
    unfinished = torch.ones(len(prompts), dtype=torch.bool, device=prompts.device)
    for _ in range(max_length - prompts.shape[1]):
        logits = actor(tokens)[:, -1].float() / temperature
        following = torch.multinomial(torch.softmax(logits, -1), 1).squeeze(1)
        following = torch.where(unfinished, following, END)
        tokens = torch.cat([tokens, following[:, None]], 1)
        unfinished &= following != END
        if not unfinished.any():  # here
            break
    return F.pad(tokens, (0, max_length - tokens.shape[1]), value=END)


def reward_of(answers):
    """Longer answers with few repetitions are better."""
    used = torch.stack([row.unique().numel() / row.numel() * torch.ones(()) for row in answers.cpu()])
    return used - used.mean()


def ppo_loss(actor, answers, rewards, prompt_length):
    logits = actor(answers[:, :-1]).float()
    chosen = torch.log_softmax(logits, -1).gather(-1, answers[:, 1:, None]).squeeze(-1)
    mask = torch.ones_like(chosen)
    mask[:, : prompt_length - 1] = 0
    mask *= answers[:, 1:] != END
    return -(chosen * mask).sum(1).mul(rewards.to(chosen.device)).sum() / mask.sum().clamp(min=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=12)
    parser.add_argument("--temperature", type=float, default=1.0)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    actor = Actor().to(device)
    for layer in actor.layers:
        fully_shard(layer)
    fully_shard(actor)
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-4)

    prompts = Prompts(Path("prompts.pt"), 8 * world * args.steps)
    sampler = torch.utils.data.DistributedSampler(prompts, shuffle=False)
    loader = torch.utils.data.DataLoader(prompts, batch_size=8, sampler=sampler, num_workers=1)
    torch.manual_seed(1000 + rank)
    for step, batch in enumerate(loader):
        batch = batch.to(device)
        answers = sample(actor, batch, args.max_length, args.temperature)
        rewards = reward_of(answers)
        loss = ppo_loss(actor, answers, rewards, batch.shape[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f} reward {rewards.max().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
