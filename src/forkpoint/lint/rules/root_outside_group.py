"""A fixed global rank as the root of a collective in a sub-group.

`src` and `dst` are *global* ranks. `src=0` with a group that is not the whole world is right only for the one group that
contains rank 0; all other groups fail or hang.

Use `dist.get_global_rank(group, 0)`, or `group_src=0`.

Not reported: the default group, and computed roots. Advisory where the group is only called `group`.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import group_of

CODE = "root-outside-group"
_ROOTED = frozenset({"broadcast", "broadcast_object_list", "reduce", "gather", "scatter", "gather_object",
                     "scatter_object_list"})  # fmt: skip

_ANY_GROUP = frozenset({"group", "process_group", "pg", "comm_group"})
"""Names that do not say which group it is: it may be one that was made to contain the root."""


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            dotted = analysis.resolver.dotted(call.func, function) or ""
            if api is None or api.op not in _ROOTED or not dotted.startswith(("torch.distributed", "deepspeed.comm")):
                continue
            group = group_of(call)
            root = next((k.value for k in call.keywords if k.arg in {"src", "dst"}), None)
            if root is None and len(call.args) > 1 and api.op in {"broadcast", "broadcast_object_list", "reduce"}:
                root = call.args[1]
            if group is not None and isinstance(root, ast.Constant) and isinstance(root.value, int):
                yield violation(
                    CODE,
                    f"{api.op} uses the fixed global rank {root.value} as root of {group}, which may not contain it",
                    function,
                    call,
                    condition=root,
                    advisory=group.rpartition(".")[2].strip("_") in _ANY_GROUP,
                )


RULE = LintRule(
    code=CODE,
    title="a fixed global rank as root of a sub-group",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def share(x, mesh):
    dist.broadcast(x, src=0, group=mesh.get_group("tp"))
""",
    silent_in="""\
import torch.distributed as dist

def share(x, mesh):
    group = mesh.get_group("tp")
    dist.broadcast(x, src=dist.get_global_rank(group, 0), group=group)
""",
)
