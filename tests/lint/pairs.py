"""Two programs that differ in one respect: in the first lint finds something, in the second it must not."""

import textwrap
from pathlib import Path
from typing import NamedTuple

from forkpoint.lint import Options, lint
from tests.lint.samples import program_of

HEAD = """\
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""


class Pair(NamedTuple):
    rule: str
    found_in: str
    silent_in: str


def rules_in(folder: Path, source: str) -> set[str]:
    program = program_of(folder, HEAD + textwrap.dedent(source))
    return {v.rule for v in lint(program, Options()).violations}


def check_pair(pair: Pair, folder: Path) -> None:
    assert pair.rule in rules_in(folder, pair.found_in)
    assert rules_in(folder, pair.silent_in) == set()
