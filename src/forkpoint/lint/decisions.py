"""Branches at which ranks that decide differently communicate differently, and violations with their places."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from forkpoint.lint.rule import Related, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength, dimensions_in, is_rank_word, runs_on_one_rank
from forkpoint.source.branches import Arm, Branch, CommStep, name_step, skipped, tell_reason
from forkpoint.source.code import Function
from forkpoint.source.switches import left_before
from forkpoint.source.syntax import all_arguments, assumed, guards, last_word, names_and_attributes_in, shortened
from forkpoint.source.value import Reason, Reasons, is_stronger, strength_of

# ---------------------------------------------------------------------------------------------------------------------
# Branches at which ranks that decide differently communicate differently.

_DOUBTFUL = frozenset(Origin) - {Origin.RANK, Origin.LOCAL_DATA, Origin.ORDER}
"""If one value is doubtful, all decisions based on it are."""


@dataclass(frozen=True, slots=True)
class UnequalBranch:
    """A branch with steps that only ranks in some arms do."""

    branch: Branch
    steps: tuple[CommStep, ...]
    at: ast.stmt | ast.expr
    """The call that some ranks skip, or the statement by which they leave."""
    leaves: str | None
    """How ranks skip the steps: `return`, `continue` or `break`; None if the steps are in another arm."""
    reasons: Reasons

    @property
    def is_possible_only(self) -> bool:
        return strength_of(self.reasons) is Strength.POSSIBLE

    @property
    def is_membership(self) -> bool:
        """The condition may select just the members of the group that the steps use: it tests the rank itself, not
        something computed from it.
        """
        asked = self.branch.function.module.source(self.branch.test)
        names_rank = "is_" in asked or any(is_rank_word(n) for n in names_and_attributes_in(self.branch.test))
        names_rank = names_rank or any(isinstance(part, ast.Name | ast.Attribute) for part in _parts(self.branch.test))
        plain = all(r.origin is Origin.RANK and (names_rank or r.expression in asked) for r in self.reasons)
        return plain and all(s.group and not _is_within(self.branch, s) for s in self.steps)

    @property
    def is_same_within_groups(self) -> bool:
        """All members of each step's group decide alike: they are in it because of what the condition asks, or the
        condition is about another dimension of the mesh.
        """
        asked = names_and_attributes_in(self.branch.test)
        return all(
            s.group is not None and (_asks_for(s.group, asked) or _is_across(self.reasons, s.group)) for s in self.steps
        )


def _parts(test: ast.expr) -> list[ast.expr]:
    """What `and`, `or` and `not` connect."""
    match test:
        case ast.BoolOp(values=values):
            return [part for value in values for part in _parts(value)]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _parts(inner)
        case _:
            return [test]


def _is_within(branch: Branch, step: CommStep) -> bool:
    """The condition asks for this rank's place in the very object that the step uses: `gang.rank == 0`, `gang.barrier()`."""
    if step.reach.through is None or not isinstance(step.call.func, ast.Attribute):
        return False
    used = ast.unparse(step.call.func.value)
    asked = (n.value for n in ast.walk(branch.test) if isinstance(n, ast.Attribute) and is_rank_word(n.attr))
    return used not in branch.function.module.imports and any(ast.unparse(expr) == used for expr in asked)


def _asks_for(group: str, names: set[str]) -> bool:
    """`if group is None: return` before a collective on that group."""
    return group.rpartition(".")[2] in names


def _is_across(reasons: Reasons, group: str) -> bool:
    """Ranks of one tensor-parallel group are in the same pipeline stage."""
    own = dimensions_in(group)
    others = [dimensions_in(r.expression) for r in reasons if r.origin is Origin.RANK]
    return len(own) == 1 and len(others) == len(reasons) and all(o and not o & own for o in others)


@lru_cache(maxsize=1)
def unequal_branches(analysis: Analysis) -> tuple[UnequalBranch, ...]:
    """One for each skipped call, at the innermost branch with the strongest reason, and one for each exit. Cached, because
    several rules ask.
    """
    best: dict[ast.AST, UnequalBranch] = {}
    for unequal in _all_unequal(analysis):
        known = best.get(unequal.at)
        is_weaker = known is not None and is_stronger(known.reasons, unequal.reasons)
        if not unequal.is_same_within_groups and not is_weaker:
            best[unequal.at] = unequal
    return tuple(_first_of_each_cause(best.values()))


def _first_of_each_cause(found: Iterable[UnequalBranch]) -> Iterator[UnequalBranch]:
    """One doubtful value that decides several branches of a function is one finding, at the first of them."""
    seen: set[tuple[Function, Reason]] = set()
    for unequal in found:
        cause = min(unequal.reasons, key=lambda r: r.key)
        key = (unequal.branch.function, cause)
        if cause.origin not in _DOUBTFUL or key not in seen:
            yield unequal
        seen.add(key)


def _all_unequal(analysis: Analysis) -> Iterator[UnequalBranch]:
    called_on_some = _called_on_some(analysis)
    for function in analysis.communicating():
        branches = list(analysis.branches.of(function))
        # If only some ranks call it, the two calls do not form a pair. In a context manager they do, and the fault is where that
        # is entered.
        is_broken = function in called_on_some and not _is_entered(function)
        paired = set[ast.AST]() if is_broken else _pairs([*branches, *_when_left(function, analysis)])
        for branch in branches:
            if branch.node in paired:
                continue
            # Order alone does not change a condition.
            reasons = analysis.differences.test(branch.test, function).reasons
            reasons = frozenset(r for r in reasons if r.origin is not Origin.ORDER)
            if reasons and not _hands_over(branch, analysis):
                yield from _compare(branch, reasons, analysis)


def _hands_over(branch: Branch, analysis: Analysis) -> bool:
    """One rank gives functions that communicate to a server, which runs them, and the others wait for its commands in a loop
    without end: `if rank == 0: serve(infer=self.infer)`, `else: self.follow()`.
    """
    reaches = analysis.communication.reaches
    silent = [arm for arm in branch.arms if not arm.steps]
    calls = (n for arm in silent for s in arm.statements for n in ast.walk(s) if isinstance(n, ast.Call))
    passed = (analysis.resolver.held(a, branch.function) for call in calls for a in all_arguments(call))
    return len(silent) < len(branch.arms) and any(f in reaches for f in passed if f is not None)


def only_on_one_rank(analysis: Analysis) -> Iterator[tuple[Function, CommStep]]:
    """Functions whose decorator runs them on one rank, and the first communication in them."""
    for function in analysis.communicating():
        if any(runs_on_one_rank(last_word(d)) for d in function.decorators()):
            step = next((s for s in analysis.branches.steps(function.body, function) if _counts(s)), None)
            if step is not None:
                yield function, step


def _called_on_some(analysis: Analysis) -> set[Function]:
    """Functions that are called under a condition on the rank, directly or through a caller."""
    found: set[Function] = set()
    for function in analysis.communicating():
        for call in function.calls:
            callees = analysis.resolver.callees(call, function)
            if (
                callees.exact
                and analysis.communication.reach(call, function)
                and guard_by_rank(call, function, analysis)
            ):
                found.update(callees.functions)
    pending = list(found)
    while pending:
        function = pending.pop()
        for call in function.calls:
            for callee in analysis.resolver.callees(call, function).functions:
                if callee in analysis.communication.reaches and callee not in found:
                    found.add(callee)
                    pending.append(callee)
    return found


def guard_by_rank(
    call: ast.Call, function: Function, analysis: Analysis, *, or_before: bool = False
) -> tuple[ast.expr, Reasons] | None:
    """The innermost condition on the rank around a call, or, if asked for, one by which others have returned before it."""
    for test, _ in (*guards(call, function), *(left_before(call, function) if or_before else ())):
        reasons = analysis.differences.test(test, function).reasons
        certain = frozenset(r for r in reasons if r.origin is Origin.RANK and r.strength is Strength.CERTAIN)
        if certain:
            return test, certain
    return None


def _compare(branch: Branch, reasons: Reasons, analysis: Analysis) -> Iterator[UnequalBranch]:
    for place, arm in enumerate(branch.arms):
        if arm.leaves == "raise":
            # A crash, not a hang: the launcher ends the other ranks.
            continue
        others = [a for i, a in enumerate(branch.arms) if i != place and a.leaves != "raise"]
        for way in sorted(arm.may_leave):
            left_out = _left_out(branch, arm, others, way, analysis)
            if left_out:
                yield UnequalBranch(branch, left_out, _exit(arm.statements, way) or branch.node, way, reasons)
                return
    missing = _only_in_one(branch, [arm for arm in branch.arms if arm.leaves != "raise"], analysis)
    if missing:
        yield UnequalBranch(branch, missing, missing[0].call, None, reasons)


def _left_out(branch: Branch, arm: Arm, others: list[Arm], way: str, analysis: Analysis) -> tuple[CommStep, ...]:
    """What ranks that leave skip, and ranks in every other arm do."""
    if any(way in other.may_leave or other.leaves for other in others):
        return ()
    rest = skipped(branch, way)
    theirs = (*others[0].steps, *rest) if others else rest
    if _keys(arm.steps) == _keys(theirs):
        return ()
    leaving = assumed(branch.test, holds=arm is branch.arms[0])
    missed = (s for s in theirs if _counts(s) and s.key not in _keys(arm.steps))
    return tuple(s for s in missed if not _is_excluded(s, leaving, branch.function, analysis))


def _is_excluded(step: CommStep, leaving: set[tuple[str, bool]], function: Function, analysis: Analysis) -> bool:
    """`if not sharded and rank > 0: return`, then `if sharded: barrier()`: who leaves would not have called it."""
    needed = {known for test, holds in guards(step.call, function) for known in assumed(test, holds=holds)}
    return any((text, not holds) in leaving for text, holds in needed) or _is_silent_for(leaving, step, analysis)


def _is_silent_for(others: set[tuple[str, bool]], step: CommStep, analysis: Analysis) -> bool:
    """A function on the way asks the same question of the whole program before all that it communicates: `if is_main() or is_xla():
    save()`, which communicates `if is_xla()`.
    """
    if not any(_OF_PROGRAM.fullmatch(text) for text, _ in others):
        return False
    for function, _ in analysis.communication.path(step.reach):
        steps = analysis.branches.steps(function.body, function)
        if steps and all(_is_ruled_out(s.call, function, others) for s in steps):
            return True
    return False


def _is_ruled_out(call: ast.Call, function: Function, others: set[tuple[str, bool]]) -> bool:
    asked = {known for test, holds in guards(call, function) for known in assumed(test, holds=holds)}
    return any(_OF_PROGRAM.fullmatch(text) and (text, not holds) in others for text, holds in asked)


_OF_PROGRAM = re.compile(r"(?!self\.|cls\.)[\w.]+\(\)")
"""A function without arguments: it answers the same wherever a rank asks it."""


def _exit(block: Sequence[ast.stmt], way: str) -> ast.stmt | None:
    """The first such statement in the block."""
    kind = {"return": ast.Return, "continue": ast.Continue, "break": ast.Break}[way]
    return next((n for s in block for n in ast.walk(s) if isinstance(n, kind)), None)


def _only_in_one(branch: Branch, arms: list[Arm], analysis: Analysis) -> tuple[CommStep, ...]:
    done = _until_they_meet(branch, arms)
    keys = [_keys(steps) for steps in done]
    if len(arms) < 2 or all(k == keys[0] for k in keys):
        return ()
    common = set(keys[0]).intersection(*keys[1:])
    only = tuple(
        s
        for arm in arms
        for s in arm.steps
        if s.key not in common
        and _counts(s)
        and not _is_silent_for(assumed(branch.test, holds=arm is not branch.arms[0]), s, analysis)
    )
    # The same communication under other names on each side: as many of the same kind.
    kinds = [sorted(s.reach.api.op for s in steps if _counts(s)) for steps in done]
    return () if all(k == kinds[0] for k in kinds) else only


def _until_they_meet(branch: Branch, arms: list[Arm]) -> list[tuple[CommStep, ...]]:
    """What each arm does; where another one leaves, what follows belongs to those that stay."""
    ways = {arm.leaves for arm in arms if arm.leaves is not None}
    rest = skipped(branch, ways.pop()) if len(ways) == 1 else ()
    return [arm.steps if arm.leaves is not None else (*arm.steps, *rest) for arm in arms]


def _keys(steps: tuple[CommStep, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(s.key for s in steps if _counts(s))


def _counts(step: CommStep) -> bool:
    """Setup and teardown do not count: they are under many conditions that are nearly always equal. Groups do."""
    return step.reach.api.kind in {ApiKind.COLLECTIVE, ApiKind.IMPLICIT} or step.reach.api.op == "new_group"


def _pairs(branches: list[Branch]) -> set[ast.AST]:
    """`if rank != 0: barrier()` ... `if rank == 0: barrier()`: each rank calls it once."""
    paired: set[ast.AST] = set()
    waiting: list[tuple[Branch, bool]] = []
    for branch in branches:
        first, *others = branch.arms
        if not first.steps or any(arm.leaves for arm in branch.arms) or any(arm.steps for arm in others):
            continue
        side = _side(branch.test)
        if side is None:
            continue
        before = _other_half(branch, side, waiting)
        if before is None:
            waiting.append((branch, side))
        else:
            paired |= {before[0].node, branch.node}
            waiting.remove(before)
    return paired


def _other_half(branch: Branch, side: bool, waiting: list[tuple[Branch, bool]]) -> tuple[Branch, bool] | None:
    """The last branch that selects the other ranks for the same communication, by the same word if there is one."""
    keys, words = _keys(branch.arms[0].steps), names_and_attributes_in(branch.test)
    fitting = [(b, s) for b, s in reversed(waiting) if s is not side and _keys(b.arms[0].steps) == keys]
    same_word = (half for half in fitting if names_and_attributes_in(half[0].test) & words)
    return next(same_word, fitting[0] if fitting else None)


def _is_entered(function: Function) -> bool:
    return function.short in {"__enter__", "__exit__"} or any(
        last_word(d) == "contextmanager" for d in function.decorators()
    )


def _when_left(function: Function, analysis: Analysis) -> Iterator[Branch]:
    """The other half of a context manager: `__enter__` and `__exit__` are called in pairs."""
    other = {"__enter__": "__exit__", "__exit__": "__enter__"}.get(function.short)
    if function.owner is not None and other in function.owner.methods:
        yield from analysis.branches.of(function.owner.methods[other])


def _side(test: ast.expr) -> bool | None:
    """True if the condition selects one rank, False if it selects all others, None if neither."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            inner = _side(test.operand)
            return None if inner is None else not inner
        case ast.Compare(ops=[ast.Eq() | ast.In()]) if is_rank_word(last_word(test.left)):
            return True
        case ast.Compare(ops=[ast.NotEq() | ast.NotIn() | ast.Gt()]) if is_rank_word(last_word(test.left)):
            return False
        case ast.BoolOp():
            sides = {s for v in test.values if (s := _side(v)) is not None}
            return sides.pop() if len(sides) == 1 else None
        case _:
            return True if is_rank_word(last_word(test)) else None


# ---------------------------------------------------------------------------------------------------------------------
# Violations with their places: where the collective is, and why a condition can differ.

_MAX_CONDITION = 120


def violation(  # noqa: PLR0913 a violation has this many parts, most given by name
    rule: str,
    message: str,
    function: Function,
    node: ast.stmt | ast.expr | ast.ExceptHandler,
    *,
    condition: ast.expr | None = None,
    reasons: Reasons = frozenset(),
    related: tuple[Related, ...] = (),
    advisory: bool = False,
) -> Violation:
    best = min(reasons, key=lambda r: r.key, default=None)
    begins = (Related(best.file, best.line, f"`{best.expression}`: {best.text}"),) if best else ()
    return Violation(
        rule=rule,
        file=function.module.path,
        line=node.lineno,
        end_line=head_end(node),
        column=node.col_offset + 1,
        function=function.name,
        message=message,
        condition=shortened(function.module.source(condition), _MAX_CONDITION) if condition is not None else None,
        why=tell_reason(best) if best else None,
        related=(*related, *begins),
        advisory=advisory,
    )


def unequal_violation(rule: str, message: str, unequal: UnequalBranch, analysis: Analysis) -> Violation:
    """At the call that some ranks skip, or the statement that leaves; advisory if the reasons are weak."""
    function = unequal.branch.function
    return violation(
        rule,
        message,
        function,
        unequal.at,
        condition=unequal.branch.test,
        reasons=unequal.reasons,
        related=(branch_at(unequal.branch), *relate(unequal.steps[0], function, analysis)),
        advisory=unequal.is_possible_only or unequal.is_membership,
    )


def head_end(node: ast.stmt | ast.expr | ast.ExceptHandler) -> int:
    """The last line of a statement's head: the condition, not the block below it."""
    head = getattr(node, "test", None) or getattr(node, "iter", None) or getattr(node, "subject", None)
    if head is None and hasattr(node, "body"):
        return node.lineno
    return (head or node).end_lineno or node.lineno


def relate(step: CommStep, function: Function, analysis: Analysis) -> tuple[Related, ...]:
    """The call, and the collective it leads to."""
    here = Related(function.module.path, step.call.lineno, f"{name_step(step)} is called here")
    path = analysis.communication.path(step.reach)
    if not path:
        return (here,)
    last, call = path[-1]
    return (here, Related(last.module.path, call.lineno, f"{step.reach.api.op} in {last.name}"))


def branch_at(branch: Branch) -> Related:
    return Related(branch.function.module.path, branch.node.lineno, "the branch")
