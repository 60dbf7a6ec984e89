"""Stop after an exception that only some ranks see.

One line at the top of the handler ends the rank that caught the exception and names it; Python shows the exception
above. Other ranks do not enter the handler.
"""

import ast

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import line_before
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import torch_names
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import spelled


def offer(fork: Fork, scene: Scene) -> Probe | None:
    handler = fork.node
    if fork.kind is not ForkKind.CAUGHT or not isinstance(handler, ast.ExceptHandler):
        return None
    module = fork.function.module
    where = scene.where(module, handler)
    caught = spelled(handler.type) if handler.type else None
    named = f"`{caught}`" if caught else "an exception"
    dist = torch_names(module).dist_anywhere
    says = f"caught {named} ({where}) and would go on without the others"
    text = f'raise BaseException(f"forkpoint probe: rank {{{dist}.get_rank()}} {says}")  # forkpoint probe'
    patch = scene.patch(module, [line_before(handler.body[0], text, module)])
    title = f"End the rank that catches {named} immediately, instead of letting it continue without the others."
    return Probe(title, where, patch) if patch else None
