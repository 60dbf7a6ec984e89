"""Forks whose calls are made through context managers, properties, constructors, generators and threads."""

import textwrap
from pathlib import Path
from typing import NamedTuple

import forkpoint
from looping import for_each
from small_jobs import TORCH, SmallJob


class Case(NamedTuple):
    source: str
    """Rank 2 makes the call marked `odd`, all others the one marked `usual`."""
    odd: tuple[str, ...]
    """Functions on the stack of rank 2, innermost first; the line of each is marked with its name, of the first `odd`."""
    site: str
    """What stands on a line that is shown, first or second."""


STEP = """
def step(rank, x, local, kept: {kind}):
    dist.all_reduce(x)  # before
    if local.bad():
        {hidden}  # step
    dist.barrier()  # usual
"""
SYNC = """
class Sync:
    def __enter__(self):
        dist.broadcast(self.x, 0)  # odd

    def __exit__(self, *error):
        pass

    @property
    def mean(self):
        dist.broadcast(self.x, 0)  # odd again
"""
CASES = {
    "a context manager": Case(
        SYNC + STEP.format(kind="Sync", hidden="with Sync(): pass"), ("__enter__", "step"), "if local.bad():"
    ),
    "a context manager that was kept": Case(
        SYNC + STEP.format(kind="Sync", hidden="with kept: pass"), ("__enter__", "step"), "if local.bad():"
    ),
    "a property": Case(
        SYNC.replace("# odd again", "# odd").replace("dist.broadcast(self.x, 0)  # odd\n", "pass\n", 1)
        + STEP.format(kind="Sync", hidden="print(kept.mean)"),
        ("mean", "step"),
        "if local.bad():",
    ),
    "a constructor": Case(
        """
class Saver:
    def __init__(self, saves):
        self.saves = saves

    def save(self, x):
        if self.saves:
            dist.broadcast(x, 0)  # odd

def step(x):
    saver = Saver(dist.get_rank() == 2)
    dist.all_reduce(x)  # before
    saver.save(x)  # step
    dist.barrier()  # usual
""",
        ("save", "step"),
        "if self.saves:",
    ),
    "a generator": Case(
        """
def batches(local, x):
    for batch in local.items():
        if local.bad(batch):
            dist.broadcast(x, 0)  # odd
        yield batch

def step(x, local):
    dist.all_reduce(x)  # before
    for batch in batches(local, x):  # step
        dist.barrier()  # usual
""",
        ("batches", "step"),
        "if local.bad(batch):",
    ),
    "a thread": Case(
        """
from threading import Thread

def step(x, local):
    while True:
        dist.all_reduce(x)  # before
        if local.bad():
            dist.broadcast(x, 0)  # odd
        dist.barrier()  # usual

def main(x, local):
    Thread(target=step, args=(x, local)).start()
""",
        ("step",),
        "if local.bad():",
    ),
}
STARTED = {"name": "_bootstrap", "filename": "/usr/lib/python3.11/threading.py", "line": 1002}


def line_of(source: str, mark: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if line.endswith(f"# {mark}"))


@for_each("what", CASES)
def test_the_branch_is_found_behind(what: str, tmp_path: Path) -> None:
    case = CASES[what]
    source = "import torch.distributed as dist\n" + textwrap.dedent(case.source)
    (tmp_path / "train.py").write_text(source)
    job = SmallJob(4)

    def frames(*marked: tuple[str, str]) -> list[object]:
        lines = [{"name": f, "filename": "/train/train.py", "line": line_of(source, mark)} for f, mark in marked]
        return [TORCH, *lines, STARTED]

    for _ in range(3):
        job.op(frames=frames(("step", "before")))
    odd = [(name, "odd" if place == 0 else name) for place, name in enumerate(case.odd)]
    job.op([2], "broadcast", size=8, frames=frames(*odd), done=False)
    job.op([0, 1, 3], "barrier", size=4, frames=frames(("step", "usual")), done=False)

    sites = forkpoint.diagnose(job.capture(), source=[str(tmp_path)]).sites[:2]

    shown = [source.split("\n")[site.line - 1].strip() for site in sites]
    assert case.site in shown
    why = sites[shown.index(case.site)].why or ""
    assert "was true on rank 2" in why
