"""Compare the number of rounds of a loop.

A `range` is compared before the loop. For anything else, ranks compare before each round whether they have one, so the
job stops before the round that some ranks do not have.
"""

import ast

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import definitions, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import ROUNDS, SAME
from forkpoint.remedies.together import meet
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import last_word, shortened


def offer(fork: Fork, scene: Scene) -> Probe | None:
    loop = fork.node
    if fork.kind is not ForkKind.LOOP or not isinstance(loop, ast.For) or scene.members is None:
        return None
    if not meet(loop, fork.function, scene.analysis):
        return None
    module = fork.function.module
    where, text = scene.where(module, loop), shortened(module.source(loop.iter))
    what = f"`for ... in {text}` ({where})"
    is_range = isinstance(loop.iter, ast.Call) and last_word(loop.iter) == "range"
    name = "_forkpoint_same" if is_range else "_forkpoint_rounds"
    edits = wrapping(loop.iter, f"{name}({what!r}, ", f"{scene.members})")
    snippets = [SAME] if is_range else [SAME, ROUNDS]
    patch = scene.patch(module, [definitions(module, snippets), *edits])
    when = "before the loop" if is_range else "before each round"
    title = f"Compare `{text}` between ranks {when}: the job stops where one has fewer rounds than the others."
    return Probe(title, where, patch) if patch else None
