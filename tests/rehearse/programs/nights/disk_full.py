"""Language model with sharded parameters and checkpoints on each node's scratch disk (FSDP2)."""

import argparse
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

VOCAB = 128


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.recur = nn.GRU(width, width, batch_first=True)

    def forward(self, hidden):
        return hidden + self.recur(self.norm(hidden))[0]


class LanguageModel(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def enough_space(folder, needed):
    """Half a checkpoint is worse than none: look before it is written."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        print(f"{folder}: {free >> 20} MiB left, {needed >> 20} MiB needed; no checkpoint this time", flush=True)
        return False
    return True


def save(model, optimizer, step, folder, keep):
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    if not enough_space(folder, 3 * size):  # here
        return
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if int(os.environ["LOCAL_RANK"]) == 0:
        part = folder / "writing.pt"
        torch.save({"model": state, "step": step, "lr": optimizer.param_groups[0]["lr"]}, part)
        part.rename(folder / f"step{step:06d}.pt")
        for old in sorted(folder.glob("step*.pt"))[:-keep]:
            old.unlink()


def tokens_of(path, rank):
    if not path.exists():
        draw = torch.Generator().manual_seed(40 + rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.randint(VOCAB, (6000,), generator=draw, dtype=torch.int16), path)
    return torch.load(path, weights_only=True).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=4)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--scratch", type=Path, default=Path("scratch"))
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    args.scratch.mkdir(parents=True, exist_ok=True)
    tokens = tokens_of(Path("tokens") / f"{rank}.pt", rank)
    torch.manual_seed(0)
    model = LanguageModel().to(device)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=args.steps + 1)
    draw = torch.Generator().manual_seed(rank)
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(tokens) - args.length - 1, (8,), generator=draw)
        batch = torch.stack([tokens[s : s + args.length + 1] for s in starts.tolist()]).to(device)
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % args.save_every == 0:
            save(model, optimizer, step, args.scratch, keep=2)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
