"""Small functions by which ranks agree on a value, written for the module that gets them."""

import ast
from dataclasses import dataclass

from forkpoint.bridge.fork import Fork
from forkpoint.remedies.place import free_name
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import AGREE
from forkpoint.remedies.torch_names import torch_names
from forkpoint.source.code import Module
from forkpoint.source.syntax import names_set_in

_SAYS = {
    "any_rank": ("True on every rank if it is on one.", "MAX", "bool"),
    "all_ranks": ("True on every rank only if it is on all.", "MIN", "bool"),
    "fewest": ("The smallest of what the ranks pass, on every rank.", "MIN", "int"),
}


@dataclass(frozen=True, slots=True)
class Agreement:
    name: str
    text: str
    argument: str
    """What follows the flag: `, self.tp`, or nothing."""


def agreement(kind: str, module: Module, group: str) -> Agreement:
    says, op, made = _SAYS[kind]
    name = free_name(kind, module)
    text = AGREE.format(
        name=name,
        says=says,
        op=op,
        made=made,
        group="group" if group else "",
        group_parameter=", group" if group else "",
        group_argument=", group=group" if group else "",
        **torch_names(module).fields,
    )
    return Agreement(name, text, f", {group}" if group else "")


def group_at(fork: Fork, scene: Scene) -> str | None:
    """The expression for the group at the fork; empty for the default group, None if it has no name there."""
    named = fork.step.group if fork.step else None
    if named is None:
        return "" if scene.in_default_group else None
    if fork.step is None or fork.step.reach.through is not None:
        return None
    root = next((n.id for n in ast.walk(ast.parse(named)) if isinstance(n, ast.Name)), None)
    later = [s for s in fork.function.body if s.lineno >= fork.node.lineno]
    return None if root is None or root in names_set_in(later) else named
