"""A message to one rank, in a branch where all other ranks wait for it.

`if rank == 0: send(x, dst=1)` with `else: recv(x, src=0)` is right for two ranks. With more, ranks 2 and up wait for a
message that rank 0 never sends them.

Loop over all destinations, or use `broadcast` or `scatter`.

Not reported: partners computed from the rank (`dst=rank + 1`), and branches that name both ranks.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin
from forkpoint.source.code import Function

CODE = "message-without-partner"
_SENDS = frozenset({"send", "isend", "send_object_list"})
_RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communication.messages:
        for node in ast.walk(function.node):
            if not isinstance(node, ast.If) or not _picks_one_rank(node.test, function, analysis):
                continue
            ours, theirs = _messages(node.body, function, analysis), _messages(node.orelse, function, analysis)
            for mine, answer in ((ours, theirs), (theirs, ours)):
                sent = next((c for op, c in mine if op in _SENDS and _fixed(c, "dst", 1) is not None), None)
                awaited = next((c for op, c in answer if op in _RECEIVES and _fixed(c, "src", 1) is not None), None)
                if sent is not None and awaited is not None and mine is ours:
                    yield violation(
                        CODE,
                        "all other ranks wait for this message, but it is sent to one of them only",
                        function,
                        awaited,
                        condition=node.test,
                    )


def _picks_one_rank(test: ast.expr, function: Function, analysis: Analysis) -> bool:
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)):
        return False
    reasons = analysis.differences.test(test, function).reasons
    return any(r.origin is Origin.RANK for r in reasons)


def _messages(block: list[ast.stmt], function: Function, analysis: Analysis) -> list[tuple[str, ast.Call]]:
    calls = [n for s in block for n in ast.walk(s) if isinstance(n, ast.Call)]
    found = [(analysis.communication.api(c, function), c) for c in calls]
    # Under a further branch or loop it is not for all of them.
    nested = any(isinstance(s, ast.If | ast.For | ast.While) for s in block)
    return [] if nested else [(api.op, c) for api, c in found if api is not None and api.kind is ApiKind.P2P]


def _fixed(call: ast.Call, keyword: str, place: int) -> int | None:
    value = next((k.value for k in call.keywords if k.arg == keyword), None)
    if value is None and len(call.args) > place:
        value = call.args[place]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None


RULE = LintRule(
    code=CODE,
    title="a message for one rank that all others wait for",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def share(x):
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(x, src=0)
""",
    silent_in="""\
import torch.distributed as dist

def share(x):
    if dist.get_rank() == 0:
        for other in range(1, dist.get_world_size()):
            dist.send(x, dst=other)
    else:
        dist.recv(x, src=0)
""",
)
