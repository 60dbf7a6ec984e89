"""Five of the strangers' programs with NCCL, four ranks on one GPU; the same table as bench.rehearse.strangers.

    python -m bench.rehearse.on_nccl FOLDER          # at most 6 minutes

The programs are written for gloo on CPUs. Each gets the few words that move its model, batches and results to the GPU; no line
moves, so the truth's lines hold.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.rehearse.strangers import measure
from forkpoint.lab.ranks import SHARED_GPU
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.rehearsal import RehearsalSettings
from forkpoint.rehearse.run import common_environ

_INIT: Final = (
    'dist.init_process_group("gloo")',
    'os.environ["NCCL_HOSTID"] = "node" + os.environ["RANK"]; dist.init_process_group("nccl")',
)
_CHANGES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "01": (
        ("TinyLM(cfg)\n", "TinyLM(cfg).cuda()\n"),
        ("model(x)", "model(x.cuda())"),
        ("y.flatten()", "y.cuda().flatten()"),
        ("torch.zeros(2)", 'torch.zeros(2, device="cuda")'),
        ("y.numel()])", "y.numel()]).cuda()"),
    ),
    "04": (
        ("DDP(Net())", "DDP(Net().cuda())"),
        ("self.model(x), y)", "self.model(x.cuda()), y.cuda())"),
        ("float(self.bad_batches)])", "float(self.bad_batches)]).cuda()"),
    ),
    "10": (
        ("DistributedDataParallel(module)", "DistributedDataParallel(module.cuda())"),
        ("(x), y)", "(x.cuda()), y.cuda())"),
        ("float(self.global_step)])", "float(self.global_step)]).cuda()"),
    ),
    "13": (
        ("DDP(Net())", "DDP(Net().cuda())"),
        ("model(x), y)", "model(x.cuda()), y.cuda())"),
        ("torch.tensor(float(value))", 'torch.tensor(float(value), device="cuda")'),
    ),
    "14": (
        ("DDP(CausalLM(args.vocab, args.dim))", "DDP(CausalLM(args.vocab, args.dim).cuda())"),
        ("self.training_step(batch)", "self.training_step({k: v.cuda() for k, v in batch.items()})"),
    ),
}
_KINDS: Final = {
    "01": "not-a-number",
    "04": "exception-in-try",
    "10": "another-value",
    "13": "not-ready",
    "14": "small-samples",
}
"""Those that found it with gloo."""
_MINUTES_EACH: Final = 0.9


def convert(source: str, changes: tuple[tuple[str, str], ...]) -> str:
    for old, new in (_INIT, *changes):
        assert old in source, old
        source = source.replace(old, new)
    return source


def main() -> int:
    programs = Path(sys.argv[1])
    os.environ.update(SHARED_GPU)
    starter = WarmStart(sys.executable, common_environ(os.environ))
    for name, changes in _CHANGES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, name)
            shutil.copytree(programs / name, folder, ignore=shutil.ignore_patterns("fixed"))
            script = folder / "train.py"
            script.write_text(convert(script.read_text(), changes))
            print(f"{name} with NCCL", flush=True)
            settings = RehearsalSettings(_MINUTES_EACH, only=(_KINDS[name],), starter=starter)
            scores = measure(folder, settings, fixed=False, whole=False)
        print(f"=> {name}: {max(map(str, scores), default='not found')}", flush=True)
    starter.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
