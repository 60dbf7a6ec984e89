"""Headlines for forks in the source: who skipped, took or left what where, and what decided."""

import ast

from forkpoint.model.headline import plain_call, plain_line, plain_ranks, quoted, with_endings
from forkpoint.source.apis import Origin
from forkpoint.source.branches import CommStep
from forkpoint.source.bridge.fork import Fork, ForkKind, Separation
from forkpoint.source.bridge.sides import Sides
from forkpoint.source.flow import Turn, exit_of

_PASSES = {"backward": "the backward pass", "forward": "the forward pass"}
_WHY = {
    Origin.RANK: "it depends on the rank",
    Origin.LOCAL_DATA: "it depends on each rank's own data",
    Origin.ORDER: "its order differs between processes",
    Origin.TIME: "each rank reads its own clock",
    Origin.RANDOM: "each rank draws its own random numbers",
    Origin.MEMORY: "it depends on each rank's own memory",
    Origin.FILES: "it depends on files that ranks see differently",
    Origin.TIMING: "it depends on when each rank looks",
}


def tell_fork(fork: Fork, separation: Separation, sides: Sides) -> tuple[str, ...]:
    """Empty if the place cannot be named."""
    place = plain_line(fork.function.module.path, fork.node.lineno)
    if place is None:
        return ()
    earlier = ", in an earlier round" if separation.slip else ""
    match fork.kind:
        case ForkKind.CAUGHT:
            told = _tell_caught(fork, separation, sides, place)
        case ForkKind.LOOP:
            told = _tell_loop(fork, separation, sides, place)
        case ForkKind.LEFT:
            told = _tell_left(fork, separation, sides, place)
        case _:
            told = _tell_branch(fork, separation, sides, place)
    return tuple(text for main, *ends in told for text in with_endings(f"{main}{earlier}", *ends))


def tell_order(fork: Fork) -> tuple[str, ...]:
    """One call per element of something whose order differs."""
    place, over = plain_line(fork.function.module.path, fork.node.lineno), _condition(fork)
    main = (
        f"ranks make one call per element{f' of {over}' if over else ''} at {place}, in an order that differs by rank"
    )
    why = "; it is a set, whose order differs between processes" if "set" in fork.sentence else ""
    return with_endings(main, why) if place else ()


def _tell_branch(fork: Fork, separation: Separation, sides: Sides, place: str) -> list[list[str]]:
    odd, usual = plain_ranks(sides.odd.ranks), plain_ranks(sides.usual.ranks)
    turn, decided = separation.odd, _decided(fork, separation, sides)
    if turn is None or not isinstance(turn.node, ast.If):
        condition = f"condition {told}" if (told := _condition(fork)) else "condition"
        went = f"the {condition} at {place} had another result on {odd} than on {usual}"
        return [[went, *_because(fork)]]
    if not sides.named:
        return [[f"{odd} and {usual} went different ways at {place}", *decided]]
    step, line = fork.step, plain_line(fork.function.module.path, fork.step.call.lineno) if fork.step else None
    word = exit_of(separation.usual.block) if separation.usual else None
    if step is not None and line and holds(turn, step):
        return [[f"{odd} ran {_call(step)} at {line}, which {usual} skipped", *decided]]
    if step is not None and line and not turn.block:
        return [[f"{odd} skipped {_call(step)} at {line} that {usual} ran", *decided]]
    if word is not None and not turn.block:
        return [[f"{odd} went on at {place}, where {usual} took the `{word}`", *decided]]
    if not turn.block:
        return [[f"{odd} skipped the branch at {place} that {usual} took", *decided]]
    taken = "the branch" if turn.block is turn.node.body else "the `else`"
    return [[f"{odd} took {taken} at {place}, and {usual} did not", *decided]]


def _decided(fork: Fork, separation: Separation, sides: Sides) -> list[str]:
    """`; `loss < best` was false on it`."""
    turn, condition = separation.odd, _condition(fork)
    if condition is None or turn is None or not isinstance(turn.node, ast.If):
        return []
    it = plain_ranks(sides.odd.ranks) if not sides.named else "it" if len(sides.odd.ranks) == 1 else "them"
    return [f"; {condition} was {'true' if turn.block is turn.node.body else 'false'} on {it}"]


def _tell_left(fork: Fork, separation: Separation, sides: Sides, place: str) -> list[list[str]]:
    odd, usual = plain_ranks(sides.odd.ranks), plain_ranks(sides.usual.ranks)
    block = separation.odd.block if separation.odd else ()
    word, last = exit_of(block), block[-1] if block else None
    if isinstance(last, ast.Return | ast.Continue | ast.Break):
        place = plain_line(fork.function.module.path, last.lineno) or place
    decided = _decided(fork, separation, sides)
    if not sides.named:
        return [[f"{odd} took the `{word}` at {place}, and {usual} went on", *decided]]
    missed = f" and missed the {_call_of(sides)} of {usual}"
    return [
        [f"{odd} took the `{word}` at {place}{missed}", *decided],
        [f"{odd} took the `{word}` at {place}", *decided],
    ]


def _tell_loop(fork: Fork, separation: Separation, sides: Sides, place: str) -> list[list[str]]:
    odd, usual = plain_ranks(sides.odd.ranks), plain_ranks(sides.usual.ranks)
    loop, turn = f"the {_loop(fork)} at {place}", separation.odd
    body = fork.node.body if isinstance(fork.node, ast.For | ast.AsyncFor | ast.While) else ()
    went_on = turn is not None and turn.block is body
    if separation.slip or turn is None or not sides.named:
        main = f"{loop} ran a different number of rounds on {odd} than on {usual}"
    elif sides.same_rank:
        main = f"{odd} ran {'more' if went_on else 'fewer'} rounds of {loop} than its peers expect"
    elif went_on:
        main = f"{odd} ran another round of {loop} when {usual} had left it"
    else:
        main = f"{odd} left {loop} when {usual} ran another round"
    return [[main, *_because(fork)]]


def _loop(fork: Fork) -> str:
    """`` loop over `batches` ``, `` `while left() > 0` loop ``."""
    condition = fork.function.module.source(fork.test) if fork.test is not None else ""
    if isinstance(fork.node, ast.While):
        return f"{head} loop" if (head := quoted(f"while {condition}")) else "loop"
    return f"loop over {over}" if (over := quoted(condition)) else "loop"


def _tell_caught(fork: Fork, separation: Separation, sides: Sides, place: str) -> list[list[str]]:
    odd, usual = plain_ranks(sides.odd.ranks), plain_ranks(sides.usual.ranks)
    caught = fork.node.type if isinstance(fork.node, ast.ExceptHandler) else None
    kinds = fork.function.module.source(caught) if caught else ""
    name = (quoted(kinds) if any(letter.isupper() for letter in kinds) else None) or "an exception"
    if separation.turn is not separation.odd:
        return [[f"{usual} caught {name} at {place}, and {odd} did not"]]
    step = fork.step
    if step is not None and holds(separation.turn, step):  # what it ran there, and only then what the others wait in
        line = plain_line(fork.function.module.path, step.call.lineno)
        ran = f"{odd} caught {name} at {place} and ran {_call(step)}"
        return [[ran, f" at {line}" if line else "", f", which {usual} skipped"], [ran]]
    return [[f"{odd} caught {name} at {place} and went on without the {_call_of(sides)} of {usual}"]]


def _call_of(sides: Sides) -> str:
    """`all_reduce`; `call` if a stack shows that the usual ranks wait, but not in what."""
    op = sides.usual.op
    return plain_call(op) if op is not None and " " not in op else "call"


def holds(turn: Turn, step: CommStep) -> bool:
    """Whether the call is in what this side ran."""
    return any(step.call is node for statement in turn.block for node in ast.walk(statement))


def _call(step: CommStep | None) -> str:
    """`` `export()` `` or `the barrier`: what the branch calls, as a reader of the source sees it."""
    if step is None:
        return "a call"
    through = step.reach.through
    op = step.reach.api.op
    name = quoted(f"{through.short}()") if through is not None else None
    return name or _PASSES.get(op, f"the {plain_call(op)}")


def _condition(fork: Fork) -> str | None:
    return quoted(fork.function.module.source(fork.test)) if fork.test is not None else None


def _because(fork: Fork) -> list[str]:
    best = min(fork.reasons, key=lambda reason: reason.key, default=None)
    if best is None or best.origin not in _WHY:
        return []
    why = _WHY[best.origin]
    if fork.kind is ForkKind.LOOP:
        why = why.replace("it depends", "the loop's length depends")
    return [f"; {why}"]
