"""What the notes of a calm run cost: CPU time per step of a small DDP loop, with and without them, in turns.

    python -m bench.rehearse.calm_cost --rounds 7

The guard runs in both, as in every trial; its own cost is measured by `bench.guard.cost`. CPU time is compared, not the
clock: other programs may run beside.
"""

import argparse
import os
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from statistics import median

from forkpoint.rehearse.model import RunMode, RunOrder
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.run import RehearsedJob, RunLimits, common_environ, plan_program, run_job
from forkpoint.rehearse.workspace import workspace

_SCRIPT = """
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(16000, 64), torch.randn(16000, 1))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)))
optimizer = torch.optim.Adam(model.parameters())
worst, began, steps = 0.0, 0.0, 0
for inputs, targets in loader:
    if steps == 20:
        began = time.process_time()
    loss = (model(inputs) - targets).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    worst = max(worst, loss.item())
    steps += 1
print("per step", (time.process_time() - began) / (steps - 20))
dist.destroy_process_group()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    starter = WarmStart(sys.executable, common_environ(os.environ))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("train.py").write_text(_SCRIPT)
        job = RehearsedJob(plan_program([sys.executable, "train.py"], args.ranks, os.environ), os.environ, starter)
        pairs = [(_per_step(job, RunMode.TRIAL), _per_step(job, RunMode.CALM)) for _ in range(args.rounds)]
    starter.end()
    ratios = sorted(noted / plain for plain, noted in pairs)
    plain, noted = (median(pair[i] for pair in pairs) for i in (0, 1))
    print(f"{plain * 1e3:.3f} ms without notes, {noted * 1e3:.3f} ms with; ratio {median(ratios):.3f} "
          f"({ratios[0]:.3f} to {ratios[-1]:.3f}), {args.rounds} rounds, {args.ranks} ranks")  # fmt: skip
    return 0


def _per_step(job: RehearsedJob, mode: RunMode) -> float:
    """Without a trial nothing is disturbed and nothing noted."""
    with workspace(job.program.folder) as place:
        run_job(job, RunOrder(mode, str(place.told), (str(place.work),)), place, RunLimits(600, 300, steps_after=False))
        lines = (place.logs / "log_rank_0.txt").read_text().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("per step"))


if __name__ == "__main__":
    sys.exit(main())
