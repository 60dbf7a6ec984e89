"""Sort before a loop whose order differs by rank.

The order of a set or a directory listing is not defined. Only for loops over those whose elements are names: others
may have no order, and a patch must not raise where the program did not.
"""

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.together import unordered_loop
from forkpoint.source.bridge.fork import Fork
from forkpoint.source.syntax import is_over_names, last_word, shortened


def offer(fork: Fork, scene: Scene) -> Fix | None:
    loop = unordered_loop(fork, scene.analysis)
    if loop is None or not is_over_names(loop) or last_word(loop.iter) == "sorted":
        return None
    module = fork.function.module
    patch = scene.patch(module, wrapping(loop.iter, "sorted(", ")"))
    text = shortened(module.source(loop.iter))
    return Fix(f"Sort `{text}` ({scene.where(module, loop)}) before looping over it.", patch) if patch else None
