"""Small programs, as files."""

import textwrap
from pathlib import Path

from forkpoint.source import read_program
from forkpoint.source.analysis import Analysis, analyse
from forkpoint.source.value import Value

HEAD = """\
import math, os, random, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""


def analysis_of(folder: Path, **modules: str) -> Analysis:
    """`train="..."` becomes train.py, behind the usual imports."""
    for name, source in modules.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + textwrap.dedent(source))
    return analyse(read_program([str(folder)]))


def asked(analysis: Analysis) -> Value:
    """What is known of the condition on the line that ends in `# ?`."""
    for function in analysis.program.functions():
        for test in analysis.differences.facts(function).tests:
            line = function.module.lines[(test.end_lineno or test.lineno) - 1]
            if line.rstrip().endswith(b"# ?"):
                return analysis.differences.test(test, function)
    raise AssertionError("no condition is marked")
