"""Which calls come to a collective, and by which way."""

from pathlib import Path

from forkpoint.source import read_program
from forkpoint.source.analysis import Analysis, analyse
from looping import for_each
from tests.source.written import analysis_of


def reached(analysis: Analysis, function: str) -> str | None:
    """`all_reduce` for a function that comes to it."""
    for each in analysis.program.functions():
        if each.name == function and each in analysis.communication.reaches:
            return analysis.communication.reaches[each].api.op
    return None


COMES_TO = {
    "a call": ("def f(x):\n    dist.all_reduce(x)", "all_reduce"),
    "an alias": ("from torch.distributed import all_gather as ag\ndef f(x):\n    ag([], x)", "all_gather"),
    "the functional form": (
        "import torch.distributed._functional_collectives as fc\ndef f(x):\n    return fc.all_gather_tensor(x, 0, 'g')",
        "all_gather_tensor",
    ),
    "another function": ("def g(x):\n    dist.barrier()\ndef f(x):\n    g(x)", "barrier"),
    "a nested function": ("def f(x):\n    def g():\n        dist.barrier()\n    g()", "barrier"),
    "a method of an object made here": (
        "class M:\n    def read(self):\n        dist.all_reduce(self.t)\ndef f():\n    m = M()\n    m.read()",
        "all_reduce",
    ),
    "a method of an annotated parameter": (
        "class M:\n    def read(self):\n        dist.all_reduce(self.t)\ndef f(m: 'M | None'):\n    m.read()",
        "all_reduce",
    ),
    "a method of what the only caller passes": (
        ("class M:\n    def compute(self):\n        dist.all_reduce(self.t)\ndef f(m):\n    m.compute()\n"
        "def main():\n    f(M())"),
        "all_reduce",
    ),
    "an inherited method": (
        "class A:\n    def go(self):\n        dist.barrier()\nclass B(A):\n    def f(self):\n        self.go()",
        "barrier",
    ),
    "super": (
        "class A:\n    def f(self):\n        dist.barrier()\nclass B(A):\n    def f(self):\n        super().f()",
        "barrier",
    ),
    "an object in an attribute": (
        ("class M:\n    def go(self):\n        dist.barrier()\nclass T:\n    def __init__(self):\n        self.m = M()\n"
        "def f():\n    t = T()\n    t.m.go()"),
        "barrier",
    ),
    "a wrapped model": ("def f(net, x):\n    model = DDP(net)\n    return model(x)", "DistributedDataParallel"),
    "a backward pass": ("def f(loss):\n    loss.backward()", "backward"),
    "a trainer's gather": ("def f(accelerator, x):\n    return accelerator.gather(x)", "gather"),
    "a thread": ("import asyncio\nasync def f(x):\n    await asyncio.to_thread(dist.broadcast, x, src=0)", "broadcast"),
    "a function that is passed": ("def g(x, call):\n    call(x)\ndef f(x):\n    g(x, dist.all_reduce)", "all_reduce"),
}  # fmt: skip

STAYS_LOCAL = {
    "an element picked by index": "def f(x, i):\n    return x.gather(dim=1, index=i)",
    "functools.reduce": "import functools\ndef f(xs):\n    return functools.reduce(max, xs)",
    "a method of the same name elsewhere": (
        "class A:\n    def flush_all(self):\n        dist.barrier()\nclass B:\n    def flush_all(self):\n        pass\n"
        "def f(x):\n    x.flush_all()"
    ),
    "a common method of an unknown object": "class A:\n    def run(self):\n        dist.barrier()\ndef f(x):\n    x.run()",
    "a function of the program with a known name": "def all_reduce(x):\n    return x\ndef f(x):\n    return all_reduce(x)",
    "a function that is only defined": "def f(x):\n    def later():\n        dist.barrier()\n    return later",
}


@for_each("what", COMES_TO)
def test_it_comes_to_a_collective_through(what: str, tmp_path: Path) -> None:
    source, op = COMES_TO[what]
    name = "B.f" if "class B" in source else "f"

    found = reached(analysis_of(tmp_path, train=source), name)

    assert found == op


@for_each("what", STAYS_LOCAL)
def test_it_does_not_communicate(what: str, tmp_path: Path) -> None:
    assert reached(analysis_of(tmp_path, train=STAYS_LOCAL[what]), "f") is None


def test_the_way_to_the_collective_is_told_across_files(tmp_path: Path) -> None:
    analysis = analysis_of(
        tmp_path,
        pkg____init__="",
        pkg__stats="def total(x):\n    dist.all_reduce(x)\n",
        pkg__log="from .stats import total\ndef write(x):\n    total(x)\n",
        train="from pkg.log import write\ndef f(x):\n    write(x)\n",
    )
    train = next(f for f in analysis.program.functions() if f.name == "f")

    reach = analysis.communication.reach(train.calls[0], train)

    assert reach is not None
    assert [step.name for step, _ in analysis.communication.path(reach)] == ["write", "total"]


def test_names_are_followed_through_stars_and_circles_of_stars_end(tmp_path: Path) -> None:
    for name, source in {
        "pkg/__init__.py": "from .core import *\nfrom .rest import *\n",
        "pkg/core/__init__.py": "from .stats import total\n",
        "pkg/core/stats.py": "import torch.distributed as dist\ndef total(x):\n    dist.all_reduce(x)\n",
        "pkg/rest.py": "from pkg import nowhere\n",
        "train.py": "from pkg import nowhere, total\ndef f(x):\n    total(x)\n    nowhere(x)\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)

    assert reached(analyse(read_program([str(tmp_path)])), "f") == "all_reduce"
