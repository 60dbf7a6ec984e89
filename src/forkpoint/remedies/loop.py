"""A loop that may have another number of rounds, or another order, on each rank.

Probe of rounds: a `range` is compared before the loop. For anything else, ranks compare before each round whether they have
one, so the job stops before the round that some ranks do not have.

Fix of rounds: a `range` is cut to the smallest length before the loop. For anything else, ranks agree before each round
whether all of them have one more. Ranks with more rounds skip their last ones.

Probe of the order: the elements of a set or a directory listing are put into a list, which is compared before the loop.

Fix of the order: they are sorted. Only where they are names: others may have no order, and a patch must not raise where the
program did not.
"""

import ast

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import free_name, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import IN_STEP, ROUNDS, SAME, agreement, group_at
from forkpoint.remedies.together import meet, unordered_loop
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import is_over_names, last_word, names_in, shortened


def compare_rounds(fork: Fork, scene: Scene) -> Probe | None:
    loop = fork.node
    if fork.kind is not ForkKind.LOOP or not isinstance(loop, ast.For) or scene.members is None:
        return None
    if not meet(loop, fork.function, scene.analysis):
        return None
    module = fork.function.module
    text = shortened(module.source(loop.iter))
    what = f"`for ... in {text}` ({scene.where(module, loop)})"
    is_range = isinstance(loop.iter, ast.Call) and last_word(loop.iter) == "range"
    name = "_forkpoint_same" if is_range else "_forkpoint_rounds"
    edits = wrapping(loop.iter, f"{name}({what!r}, ", f"{scene.members})")
    when = "before the loop" if is_range else "before each round"
    title = f"Compare `{text}` between ranks {when}: the job stops where one has fewer rounds than the others."
    return scene.probe(title, module, loop, edits, [SAME] if is_range else [SAME, ROUNDS])


def agree_on_rounds(fork: Fork, scene: Scene) -> Fix | None:
    loop = fork.node
    if fork.kind is not ForkKind.LOOP or not isinstance(loop, ast.For):
        return None
    group = group_at(fork, scene)
    if group is None or _is_over_keys(loop) or not meet(loop, fork.function, scene.analysis, equally_often=True):
        return None
    module = fork.function.module
    length = _length(loop.iter)
    if length is not None:
        agreed = agreement("fewest", module, group)
        texts, edits = [agreed.text], wrapping(length, f"{agreed.name}(", f"{agreed.argument})")
    else:
        agreed, name = agreement("all_ranks", module, group), free_name("in_step", module)
        options = {"group_parameter": ", group" if group else "", "group_argument": ", group" if group else ""}
        texts = [agreed.text, IN_STEP.format(name=name, agree=agreed.name, **options)]
        edits = wrapping(loop.iter, f"{name}(", f"{agreed.argument})")
    text, where = shortened(module.source(loop.iter)), scene.where(module, loop)
    how = "before the loop" if length is not None else "in each round"
    title = (
        f"Agree {how} on the number of rounds over `{text}` ({where}): as many as the rank with the fewest has. "
        "The others skip their last ones."
    )
    return scene.fix(title, module, edits, texts)


def _is_over_keys(loop: ast.For) -> bool:
    """The loop is over keys: a round of one rank must not be matched with the round of another key."""
    keyed = isinstance(loop.iter, ast.Call) and last_word(loop.iter) in {"sorted", "keys", "items", "values", "set"}
    picked = {
        name for b in loop.body for n in ast.walk(b) if isinstance(n, ast.Subscript) for name in names_in(n.slice)
    }
    counted = isinstance(loop.iter, ast.Call) and last_word(loop.iter) in {"range", "enumerate"}
    return keyed or (not counted and bool(picked & names_in(loop.target)))


def _length(iterated: ast.expr) -> ast.expr | None:
    """`n` of `range(n)`."""
    if isinstance(iterated, ast.Call) and last_word(iterated) == "range" and len(iterated.args) == 1:
        return None if isinstance(iterated.args[0], ast.Starred) else iterated.args[0]
    return None


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
