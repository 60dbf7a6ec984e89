"""A message to one rank, in a branch where all other ranks wait for it.

`if rank == 0: send(x, dst=1)` with `else: recv(x, src=0)` is right for two ranks. With more, ranks 2 and up wait for a
message that rank 0 never sends them.

Loop over all destinations, or use `broadcast` or `scatter`.

Also a message whose sending or receiving depends on what this rank alone knows, such as its data or its clock: the
partner cannot tell whether to expect it. Always send, or send first whether something follows.

Not reported: partners computed from the rank (`dst=rank + 1`), and branches that name both ranks.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength
from forkpoint.source.code import Function
from forkpoint.source.syntax import guards, last_word
from forkpoint.source.value import strength_of

CODE = "message-without-partner"
_SENDS = frozenset({"send", "isend", "send_object_list"})
_RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})


def _find(analysis: Analysis) -> Iterator[Violation]:
    yield from _to_one_of_many(analysis)
    yield from _by_own_decision(analysis)


def _by_own_decision(analysis: Analysis) -> Iterator[Violation]:
    """`if mask.any(): send(x, dst)`: the partner does not know whether to expect the message."""
    for function in analysis.communication.messages:
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.kind is not ApiKind.P2P:
                continue
            for test, _ in guards(call, function):
                found = analysis.differences.test(test, function).reasons
                reasons = frozenset(r for r in found if r.origin is not Origin.ORDER)
                if reasons and all(r.origin is not Origin.RANK for r in reasons):
                    yield violation(
                        CODE,
                        f"whether {api.op} is called depends on what this rank alone knows; its partner cannot tell",
                        function,
                        call,
                        condition=test,
                        reasons=reasons,
                        advisory=strength_of(reasons) is Strength.POSSIBLE,
                    )
                    break


def _to_one_of_many(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communication.messages:
        for node in ast.walk(function.node):
            if not isinstance(node, ast.If) or not _picks_one_rank(node.test, function, analysis):
                continue
            ours, theirs = _messages(node.body, function, analysis), _messages(node.orelse, function, analysis)
            for mine, answer in ((ours, theirs), (theirs, ours)):
                sent = next((c for op, c in mine if op in _SENDS and _is_fixed(c, "dst")), None)
                awaited = next((c for op, c in answer if op in _RECEIVES and _is_fixed(c, "src")), None)
                if sent is not None and awaited is not None and mine is ours:
                    yield violation(
                        CODE,
                        "all other ranks wait for this message, but it is sent to one of them only",
                        function,
                        awaited,
                        condition=node.test,
                    )


def _picks_one_rank(test: ast.expr, function: Function, analysis: Analysis) -> bool:
    is_end = last_word(test) in {"is_first_rank", "is_last_rank", "is_first_stage", "is_last_stage"}
    if not is_end and not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)):
        return False
    reasons = analysis.differences.test(test, function).reasons
    return any(r.origin is Origin.RANK for r in reasons)


def _messages(block: list[ast.stmt], function: Function, analysis: Analysis) -> list[tuple[str, ast.Call]]:
    calls = [n for s in block for n in ast.walk(s) if isinstance(n, ast.Call)]
    found = [(analysis.communication.api(c, function), c) for c in calls]
    # Under a further branch or loop it is not for all of them.
    nested = any(isinstance(s, ast.If | ast.For | ast.While) for s in block)
    return [] if nested else [(api.op, c) for api, c in found if api is not None and api.kind is ApiKind.P2P]


def _is_fixed(call: ast.Call, keyword: str) -> bool:
    """`dst=1`, or `dst=group.last_rank`: the same partner, whoever calls."""
    value = next((k.value for k in call.keywords if k.arg == keyword), None)
    if value is None and len(call.args) > 1:
        value = call.args[1]
    if isinstance(value, ast.Attribute):
        return value.attr in {"first_rank", "last_rank"}
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


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
