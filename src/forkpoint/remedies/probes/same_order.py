"""Compare the order in which ranks loop over the same elements.

The elements are put into a list, which is compared before the loop.
"""

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import definitions, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import meet, unordered_loop
from forkpoint.source.bridge.fork import Fork
from forkpoint.source.syntax import shortened


def offer(fork: Fork, scene: Scene) -> Probe | None:
    loop = unordered_loop(fork, scene.analysis)
    if loop is None or scene.members is None:
        return None
    if not meet(loop, fork.function, scene.analysis):
        return None
    module = fork.function.module
    where, text = scene.where(module, loop), shortened(module.source(loop.iter))
    what = f"order of `{text}` ({where})"
    edits = wrapping(loop.iter, f"_forkpoint_same({what!r}, list(", f"){scene.members})")
    patch = scene.patch(module, [definitions(module, [SAME]), *edits])
    title = f"Compare the order of `{text}` between ranks: the job stops before the first loop with a different order."
    return Probe(title, where, patch) if patch else None
