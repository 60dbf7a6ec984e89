"""A loop over a set or a directory listing, whose order may differ by rank.

Probe: the elements are put into a list, which is compared before the loop.

Fix: they are sorted. Only where they are names: others may have no order, and a patch must not raise where the program did
not.
"""

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import meet, unordered_loop
from forkpoint.source.bridge.fork import Fork
from forkpoint.source.syntax import is_over_names, last_word, shortened


def compare_order(fork: Fork, scene: Scene) -> Probe | None:
    loop = unordered_loop(fork, scene.analysis)
    if loop is None or scene.members is None or not meet(loop, fork.function, scene.analysis):
        return None
    module = fork.function.module
    text = shortened(module.source(loop.iter))
    what = f"order of `{text}` ({scene.where(module, loop)})"
    edits = wrapping(loop.iter, f"_forkpoint_same({what!r}, list(", f"){scene.members})")
    title = f"Compare the order of `{text}` between ranks: the job stops before the first loop with a different order."
    return scene.probe(title, module, loop, edits, [SAME])


def sort_first(fork: Fork, scene: Scene) -> Fix | None:
    loop = unordered_loop(fork, scene.analysis)
    if loop is None or not is_over_names(loop) or last_word(loop.iter) == "sorted":
        return None
    module = fork.function.module
    text = shortened(module.source(loop.iter))
    title = f"Sort `{text}` ({scene.where(module, loop)}) before looping over it."
    return scene.fix(title, module, wrapping(loop.iter, "sorted(", ")"))
