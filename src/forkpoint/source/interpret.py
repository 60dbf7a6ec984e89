"""Abstract interpretation of one function: which conditions, arguments and results can differ by rank."""

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from forkpoint.source.apis import Origin, Strength, runs_on_one_rank
from forkpoint.source.beginnings import Beginnings, Place
from forkpoint.source.code import Class, Function, spelled
from forkpoint.source.communicates import Communication
from forkpoint.source.expressions import Expressions
from forkpoint.source.made_files import is_being_made
from forkpoint.source.questions import item_name
from forkpoint.source.resolve import STARTS_THREADS, Resolver
from forkpoint.source.syntax import (
    argument_for,
    assumed,
    is_abstract,
    is_container_annotation,
    is_flag,
    is_property,
    is_raised_on_all_ranks,
    last_word,
    names_in,
)
from forkpoint.source.value import (
    EQUAL,
    MADE_EQUAL,
    NO_REASONS,
    UNKNOWN,
    Facts,
    Reason,
    Reasons,
    Value,
    combined,
    decided_by,
    join,
    settle,
    strongest,
)


class ProgramFacts(Protocol):
    """What is known about the rest of the program."""

    resolver: Resolver
    communication: Communication
    beginnings: Beginnings

    def facts(self, function: Function) -> Facts: ...
    def returned(self, function: Function) -> Value: ...
    def attribute(self, cls: Class, name: str) -> Value | None: ...
    def foreign(self, cls: Class, name: str) -> Value: ...
    def setting(self, holder: str, name: str) -> Value: ...


class Interpreter:
    """Interprets the statements of one function in order."""

    def __init__(self, function: Function, facts: Facts, differences: ProgramFacts) -> None:
        self.function = function
        self.env: dict[str, Value] = {
            p: Value(params=frozenset({p}), is_container=is_container_annotation(p, function)) for p in function.params
        }
        self.context: Value = self._called_by(differences.beginnings)
        self._skipping: Reasons = NO_REASONS
        """Why some rounds of the loop around this code may have ended before it."""
        self._rounds: frozenset[str] = frozenset()
        """Parameters whose length is the number of rounds of the loops around this code."""
        self._same_here: Reasons = NO_REASONS
        """Reasons why ranks differ that do not apply to those that get here: all of these took the same arm."""
        self._halves: dict[tuple[str, bool], dict[str, tuple[str, Value]]] = {}
        """What was assigned where a condition holds, by the condition: expressions, and their values."""
        self._facts = facts
        self._with_items: set[str] = set()
        """Variables for which single items are tracked."""
        self._all = differences
        self._values = Expressions(self, differences.resolver, differences.communication)

    def _called_by(self, beginnings: Beginnings) -> Value:
        """Why only some ranks may be in this function at all."""
        function = self.function
        path = function.module.path
        for decorator in function.decorators():
            name = last_word(decorator)
            if runs_on_one_rank(name):
                text = "it runs its function on one rank"
                reason = Reason(Origin.RANK, Strength.CERTAIN, path, decorator.lineno, f"@{name}", text)
                return Value(frozenset({reason}))
        if function not in beginnings.signal_handlers:
            return UNKNOWN
        text = "a signal reaches ranks at different times, or one of them only"
        return Value(frozenset({Reason(Origin.TIMING, Strength.LIKELY, path, function.line, function.short, text)}))

    def run(self) -> None:
        self._block(self.function.body)
        self._note_made_equal()

    def _note_made_equal(self) -> None:
        """Where the function ends, also by an early `return`: `if distributed: all_reduce(x); return`."""
        self._facts.made_equal.update(name for name in self.function.params if self.env[name].made)

    # what expressions ask

    @property
    def growth(self) -> Value:
        return Value(self.context.reasons | self._skipping, sizes=self._rounds)

    def name(self, name: str) -> Value:
        if name in self.env:
            return self.env[name]
        outer = self.function.outer
        if outer is not None:
            return self._around(name, outer)
        top = self.function.module.top
        if self.function is not top and name in self._all.resolver.assigned(top):
            # A global may be assigned again later, so a reason to differ stays valid while equality does not.
            return Value(self._around(name, top).content)
        return UNKNOWN

    def _around(self, name: str, outer: Function) -> Value:
        """A variable of the enclosing function: any value that is assigned to it there."""
        values = self._all.resolver.assigned(outer).get(name, ())
        found = [self._all.facts(outer).arguments.get(v) for v in values[:4]]
        return join(*(v for v in found if v is not None)) if any(found) else UNKNOWN

    def attribute(self, expr: ast.Attribute) -> Value | None:
        known = self.env.get(spelled(expr) or "")
        if known is not None:
            return known
        cls = self._all.resolver.class_of(expr.value, self.function)
        if isinstance(cls, Class):
            method = self._all.resolver.method(cls, expr.attr)
            if method is not None:
                # The result of a property that subclasses override is not known; its name may tell.
                known = self._all.returned(method) if is_property(method) else UNKNOWN
                return None if is_abstract(method) else known
            known = self._all.attribute(cls, expr.attr)
            foreign = self._all.foreign(cls, expr.attr)
            return join(known, foreign) if known is not None and foreign.content else (known or foreign or None)
        option = self._all.setting(last_word(expr.value), expr.attr)
        return option if option.content else None

    def returned(self, call: ast.Call, arguments: dict[ast.expr, Value]) -> Value | None:
        callees = self._all.resolver.callees(call, self.function)
        if not callees.exact or not callees.functions:
            return None
        # The first of several is the function itself; the others are its decorators.
        callee = callees.functions[0]
        if callee is self.function or callee.short == "__init__" or last_word(call) in STARTS_THREADS:
            return None
        passed = {
            p: arguments.get(argument, UNKNOWN)
            for p in callee.params
            if (argument := argument_for(p, call, callee)) is not None
        }
        result = settle(self._all.returned(callee), {**dict.fromkeys(callee.params, EQUAL), **passed})
        for name in self._all.facts(callee).made_equal:
            argument = argument_for(name, call, callee)
            if argument is not None:
                self._values.make_equal(argument)
        return result

    def yielded(self, value: Value) -> None:
        self._facts.yielded.append(value)

    def seeded_by_rank(self, drawn: str) -> Place | None:
        return self._all.beginnings.seeded_by_rank(drawn)

    def is_being_made(self, asked: ast.Call) -> bool:
        return is_being_made(asked, self.function, self._facts, self._all.communication)

    def passed(self, arguments: dict[ast.expr, Value]) -> None:
        self._facts.arguments.update(arguments)

    def grown(self, container: ast.Attribute, added: Value) -> None:
        """`self.waiting.append(x)`: its length depends on the surrounding decisions."""
        self._write(container.attr, decided_by(Value(added.content), self.growth))

    def _write(self, attribute: str, value: Value) -> None:
        before = self._facts.written.get(attribute)
        self._facts.written[attribute] = value if before is None else join(before, value)

    def test(self, node: ast.expr, value: Value) -> None:
        if self._same_here:
            value = replace(value, content=value.content - self._same_here, extent=value.extent - self._same_here)
        before = self._facts.tests.get(node)
        self._facts.tests[node] = value if before is None else join(before, value)

    # statements

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                value = self._evaluated(node.value)
                for target in node.targets:
                    self._assign(target, value, node.value)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self._evaluated(node.value), node.value)
            case ast.AugAssign():
                old, new = self._values.value(node.target), self._evaluated(node.value)
                self._assign(node.target, combined(old, new), node.value)
            case ast.Expr():
                self._values.value(node.value)
            case ast.Return():
                value = self._values.value(node.value)
                self._note_made_equal()
                self._facts.returned.append(decided_by(value, join(self.context, self._facts.exits)))
            case ast.If():
                self._if(node)
            case ast.While():
                self._while(node)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.Try() | ast.TryStar():
                self._try(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._values.value(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, value, item.context_expr)
                self._block(node.body)
            case ast.Match():
                self._match(node)
            case ast.Assert():
                self.test(node.test, self._values.value(node.test))
            case ast.Raise():
                self._values.value(node.exc)
            case ast.Delete():
                pass
            case _:
                pass

    def _evaluated(self, expr: ast.expr) -> Value:
        value = self._values.value(expr)
        self._facts.arguments[expr] = value
        return value

    def _assign(self, target: ast.expr, value: Value, source: ast.expr) -> None:
        match target:
            case ast.Name():
                # A copy, so that an assigned value can be distinguished from the previous one by identity.
                self.env[target.id] = replace(value)
                self.forget_items(target.id)
                if isinstance(source, ast.Dict) and value.content:
                    for key, item in zip(source.keys, source.values, strict=True):
                        self._keep_item(target.id, key, self._values.value(item))
            case ast.Tuple() | ast.List():
                own = len(value.parts) == len(target.elts)
                for place, part in enumerate(target.elts):
                    self._assign(part, value.parts[place] if own else replace(value, parts=()), source)
            case ast.Starred():
                self._assign(target.value, value, source)
            case ast.Attribute():
                self.env[spelled(target) or ""] = value
                written = decided_by(value, self.context)
                self._facts.writes.append((target, written))
                self._write(target.attr, written)
            case ast.Subscript():
                if isinstance(target.value, ast.Name):
                    before = self.env.get(target.value.id, UNKNOWN)
                    key = self._values.value(target.slice)
                    added = join(before, Value(value.content, equal=value.equal, params=value.params))
                    under = replace(self.growth, content=self.growth.content | key.content)
                    self.env[target.value.id] = decided_by(added, under)
                    self._keep_item(target.value.id, target.slice, value)
                elif isinstance(target.value, ast.Attribute):
                    key = self._values.value(target.slice)
                    under = replace(self.growth, content=self.growth.content | key.content)
                    self._write(target.value.attr, decided_by(Value(value.content), under))
            case _:
                pass

    def _keep_item(self, container: str, key: ast.expr | None, value: Value) -> None:
        """Notes what the item is. Branches around the assignment add what its existence depends on."""
        if isinstance(key, ast.Constant):
            self.env[item_name(container, key)] = Value(value.content, equal=not value.content, params=value.params)
            self._with_items.add(container)

    def forget_items(self, container: str) -> None:
        """Call when the variable is assigned again, or something may have changed any of its items."""
        if container in self._with_items:
            for name in [n for n in self.env if n.startswith(f"{container}[")]:
                del self.env[name]

    def _if(self, node: ast.If) -> None:
        decision = self._values.truth(node.test)
        self.test(node.test, decision)
        agreed = frozenset(r for r in decision.reasons if r.origin is Origin.RANK) if is_flag(node.test) else NO_REASONS
        ends = self._branch(decision, [node.body, node.orelse], agreed)
        if decision.may_differ and not node.orelse and len(ends) > 1:
            self._complete(node, ends[0])

    def _complete(self, node: ast.If, end: dict[str, Value]) -> None:
        """`if rank == 0: x = load()`, `barrier()`, `if rank != 0: x = load()`: all ranks have done the same."""
        known = assumed(node.test, holds=True)
        if len(known) != 1:
            return
        text, holds = known.pop()
        made = {
            name: (ast.unparse(statement.value), end.get(name, UNKNOWN))
            for statement in node.body
            if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Constant)
            for target in statement.targets
            for name in names_in(target)
        }
        for name, (expression, value) in self._halves.get((text, not holds), {}).items():
            if name in made and made[name][0] == expression:
                self.env[name] = join(value, made[name][1])
        self._halves[(text, holds)] = made

    def _branch(
        self, decision: Value, arms: list[list[ast.stmt]], agreed_in_first: Reasons = NO_REASONS
    ) -> list[dict[str, Value]]:
        """Returns the variables at the end of each arm that reaches its end."""
        before, context = dict(self.env), self.context
        self.context = join(context, decision) if decision.may_differ else context
        ends: list[dict[str, Value]] = []
        same = self._same_here
        for arm in arms:
            self.env = dict(before)
            self._same_here = same | agreed_in_first if arm is arms[0] else same
            self._block(arm)
            if self._leaves(arm) is None:
                ends.append(self.env)
        self.context, self._same_here = context, same
        ways = {self._leaves(arm) for arm in arms} if decision.may_differ else set()
        if "return" in ways:
            self._facts.exits = join(self._facts.exits, decision)
        if ways & {"continue", "break"}:
            self._skipping = strongest(self._skipping | decision.reasons)
        # If all other arms leave, every rank that gets here took the same arm.
        self.env = _merge(before, ends, decision) if len(ends) > 1 else ends[0] if ends else before
        return ends

    def _leaves(self, block: list[ast.stmt]) -> str | None:
        return self._all.resolver.exit_of(block, self.function)

    def _while(self, node: ast.While) -> None:
        skipping = self._skipping
        for _ in range(2):
            decision = self._values.truth(node.test)
            self.test(node.test, decision)
            self._branch(decision, [node.body, []])
        self._skipping = skipping
        self._block(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        iterated = self._values.value(node.iter)
        self.test(node.iter, iterated)
        skipping, around = self._skipping, self._rounds
        self._rounds |= iterated.params | iterated.sizes
        for _ in range(2):
            self._assign(node.target, self._values.element(node.iter, iterated), node.target)
            self._branch(Value(iterated.extent), [node.body, []])
        self._skipping, self._rounds = skipping, around
        self._block(node.orelse)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        self._block(node.body)
        self._block(node.orelse)
        tried = self.env
        ends = [tried]
        for handler in node.handlers:
            # As if the body had run: only what the handler itself sets depends on the exception.
            self.env = {**tried, **({handler.name: UNKNOWN} if handler.name else {})}
            self._block(handler.body)
            if self._leaves(handler.body) is None:
                ends.append(self.env)
        self.env = _merge(tried, ends, UNKNOWN) if len(ends) > 1 else tried
        self._flags(node)
        self._block(node.finalbody)

    def _flags(self, node: ast.Try | ast.TryStar) -> None:
        """`ok = False` in a handler depends on the exception."""
        for handler in node.handlers:
            for statement in () if is_raised_on_all_ranks(handler, node.body) else handler.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                    for target in statement.targets:
                        if isinstance(target, ast.Name):
                            self.env[target.id] = decided_by(self.env.get(target.id, EQUAL), self._caught(handler))

    def _caught(self, handler: ast.ExceptHandler) -> Value:
        name = ast.unparse(handler.type) if handler.type is not None else "exception"
        text = f"{name} may be raised on this rank only"
        path = self.function.module.path
        return Value(
            frozenset({Reason(Origin.EXCEPTION, Strength.LIKELY, path, handler.lineno, f"except {name}", text)})
        )

    def _match(self, node: ast.Match) -> None:
        decision = self._values.value(node.subject)
        self.test(node.subject, decision)
        self._branch(decision, [*(case.body for case in node.cases), []])


def _merge(before: dict[str, Value], ends: list[dict[str, Value]], decision: Value) -> dict[str, Value]:
    """After a branch: what was set in an arm depends on the decision. What one arm made equal stays equal if the decision
    is the same on all ranks: `if distributed: all_reduce(x)`.
    """
    merged: dict[str, Value] = {}
    for end in ends:
        merged.update(end)
    plain = not decision.may_differ
    for name in {n for end in ends for n, value in end.items() if value is not before.get(n)}:
        values = [end.get(name, before.get(name, UNKNOWN)) for end in ends]
        if plain and any(v.made for v in values):
            merged[name] = MADE_EQUAL
        else:
            merged[name] = join(*values) if plain else decided_by(join(*values), decision)
    return merged
