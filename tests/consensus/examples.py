"""The examples of docs/consensus.md, run by two ranks: as they were before, and after."""

import re
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from consensus.checks import attempt

_SECTION = re.compile(r"^## `(\w+)`$", re.MULTILINE)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def losses(rank: int) -> list[object]:
    return [[torch.tensor(1.0), torch.tensor(float("nan") if rank else 1.0), torch.tensor(1.0)]]


def save(rank: int) -> list[object]:
    future: Future[None] = Future()
    if rank == 0:
        future.set_result(None)
    return [future]


def model(rank: int) -> list[object]:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    return [DistributedDataParallel(net), torch.ones(3, 2)]


ARGUMENTS: dict[str, Callable[[int], list[object]]] = {
    "any_rank": losses,
    "all_ranks": save,
    "same_on_all_ranks": lambda rank: [{"loss": torch.ones(1)} | ({"moe": torch.ones(1)} if rank else {})],
    "broadcast_decision": lambda rank: [lambda: 601.0 - 2 * rank],
    "agree_on_exception": lambda rank: [["1.5", "bad" if rank else "2.5", "3.5"]],
    "join_uneven": lambda rank: [[torch.ones(1)] * (15 - rank)],
    "rank_zero_only": model,
}
"""Section -> what its function is given on this rank."""


def sections(page: Path) -> dict[str, list[str]]:
    """Function that a section is about -> its code, before and after."""
    _, *parts = _SECTION.split(page.read_text())
    return {name: _CODE.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def jobs(page: Path) -> dict[str, Callable[[int], dict[str, object]]]:
    imports = _CODE.findall(page.read_text())[0]
    found: dict[str, Callable[[int], dict[str, object]]] = {}
    for name, codes in sections(page).items():
        for when, code in zip(("before", "after"), codes, strict=False):
            found[f"{name} {when}"] = job(name, imports + code)
    return found


def job(name: str, code: str) -> Callable[[int], dict[str, object]]:
    path = Path(tempfile.mkdtemp()) / f"{name}_example.py"
    path.write_text(code)

    def run(rank: int) -> dict[str, object]:
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        (function,) = (value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__)
        return {"result": attempt(lambda: str(function(*ARGUMENTS[name](rank))))}

    return run
