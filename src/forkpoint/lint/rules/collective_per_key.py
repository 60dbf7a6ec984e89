"""One collective per key of a dictionary that each rank fills for itself.

A rank that saw no example of a class, ran no expert or took no measurement has one key fewer, and makes one call
fewer. Sorting the keys does not help.

Agree on the keys first (`all_gather_object` of the names), or reduce one tensor that has room for all of them.

On by default for dictionaries of a module or an object that start empty and are filled while the job runs. Advisory for
others, because most of them have the same keys on all ranks.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.branches import name_step
from forkpoint.source.code import Function, spelled
from forkpoint.source.syntax import last_word, rounds

CODE = "collective-per-key"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for loop in rounds(function):
            steps = analysis.branches.steps(loop.body, function)
            step = next((s for s in steps if s.reach.api.kind is ApiKind.COLLECTIVE), None)
            if step is None or isinstance(loop.node, ast.While):
                continue
            mapping, is_certain = _mapping(loop.head)
            filled = _is_filled_as_it_runs(mapping, function, analysis)
            if not is_certain and not filled:
                continue
            if not analysis.differences.test(loop.head, function).equal:
                yield violation(
                    CODE,
                    f"{name_step(step)} once per key of a dictionary: ranks with different keys make different calls",
                    function,
                    loop.node,
                    condition=loop.head,
                    related=relate(step, function, analysis),
                    advisory=not filled,
                )


def _mapping(head: ast.expr) -> tuple[ast.expr, bool]:
    """`d` of `sorted(d.items())`, and whether it is certainly a dictionary."""
    while isinstance(head, ast.Call) and last_word(head) in {"sorted", "list", "enumerate", "tuple"} and head.args:
        head = head.args[0]
    match head:
        case ast.Call(func=ast.Attribute(value=mapping, attr="items" | "keys")):
            return mapping, True
        case _:
            return head, False


def _is_filled_as_it_runs(mapping: ast.expr, function: Function, analysis: Analysis) -> bool:
    """It starts empty in a module or an object, so its keys depend on what this rank did."""
    made: list[ast.expr] = []
    if isinstance(mapping, ast.Name) and mapping.id not in function.params:
        own = analysis.resolver.assigned(function).get(mapping.id, [])
        made = analysis.resolver.assigned(function.module.top).get(mapping.id, []) if not own else []
        # `tracker = get_tracker()`, which returns a dictionary of its module.
        return any(_is_empty(v) for v in made) or any(_is_getter_of_filled(v, function, analysis) for v in own)
    if isinstance(mapping, ast.Attribute) and function.owner is not None and spelled(mapping) == f"self.{mapping.attr}":
        made = [value for value, _ in analysis.resolver.attributes(function.owner).get(mapping.attr, ())]
    return any(_is_empty(value) for value in made)


def _is_getter_of_filled(value: ast.expr, function: Function, analysis: Analysis) -> bool:
    if not isinstance(value, ast.Call):
        return False
    for getter in analysis.resolver.callees(value, function).functions[:1]:
        returned = [node.value for node in getter.own.returns if isinstance(node.value, ast.Name)]
        own, top = analysis.resolver.assigned(getter), analysis.resolver.assigned(getter.module.top)
        if any(r.id not in own and any(_is_empty(v) for v in top.get(r.id, ())) for r in returned):
            return True
    return False


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and last_word(value) in {"defaultdict", "dict", "OrderedDict", "Counter"}


RULE = LintRule(
    code=CODE,
    title="one collective per key of a dictionary",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
from collections import defaultdict
import torch.distributed as dist

stats = defaultdict(float)

def reduce_all():
    for name, value in sorted(stats.items()):
        dist.all_reduce(value)
""",
    silent_in="""\
import torch.distributed as dist

def reduce_all(stats, names):
    for name in names:
        dist.all_reduce(stats[name])
""",
)
