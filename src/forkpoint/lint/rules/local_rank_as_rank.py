"""The local rank, or the number of GPUs of this node, is used as the rank or world size of the job.

`init_process_group(rank=LOCAL_RANK, world_size=torch.cuda.device_count())` works on one node. On two, several processes
claim the same rank and all wait for a world that is never complete.

Leave both arguments out: torch reads RANK and WORLD_SIZE.

Not reported: local ranks that choose a device.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function

CODE = "local-rank-as-rank"
_WRONG = {"rank": ("local_rank", "LOCAL_RANK"), "world_size": ("device_count", "local_world_size", "LOCAL_WORLD_SIZE")}


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.op != "init_process_group":
                continue
            for keyword in call.keywords:
                wrong = _WRONG.get(keyword.arg or "", ())
                made = _made_of(keyword.value, function, analysis)
                word = next((w for w in wrong if any(w in text for text in made)), None)
                if word is not None:
                    yield violation(
                        CODE,
                        f"init_process_group gets {keyword.arg} from {word}, which counts within one node",
                        function,
                        call,
                        condition=keyword.value,
                    )


def _made_of(expr: ast.expr, function: Function, analysis: Analysis) -> list[str]:
    """The expression, and what is assigned to the name that it is."""
    texts = [function.module.source(expr)]
    if isinstance(expr, ast.Name):
        texts += [function.module.source(v) for v in analysis.resolver.assigned(function).get(expr.id, ())]
    return texts


RULE = LintRule(
    code=CODE,
    title="a local rank or local size is used for the whole job",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import os
import torch
import torch.distributed as dist

def start():
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl", world_size=torch.cuda.device_count(), rank=rank)
""",
    silent_in="""\
import os
import torch
import torch.distributed as dist

def start():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", world_size=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"]))
""",
)
