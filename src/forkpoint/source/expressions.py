"""Expression -> Value: whether it can differ by rank."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forkpoint.source.apis import (
    Origin,
    Strength,
    is_data_word,
    is_device_word,
    is_loader_word,
    is_local_attribute,
    is_low_rank_word,
    is_parameter_word,
    is_rank_word,
    is_setting_word,
    is_world_word,
)
from forkpoint.source.call_values import MEASURES, TYPE_LIKE, CallValues
from forkpoint.source.code import spelled
from forkpoint.source.questions import (
    asked_for_emptiness,
    asks_for_a_rank,
    asks_for_the_root,
    is_text,
    item_name,
    of_one_item,
)
from forkpoint.source.syntax import (
    ancestors,
    branches_and_loops,
    is_difference_of_keys,
    is_mask,
    is_minus_one,
    is_setting,
    last_word,
    names_and_attributes_in,
    names_in,
)
from forkpoint.source.value import (
    EQUAL,
    NO_REASONS,
    UNKNOWN,
    Reason,
    Reasons,
    Value,
    combined,
    decided_by,
    differing,
    join,
    strongest,
)

_OF_PARTS = frozenset({"parameters", "named_parameters", "params"})
"""Names of what a loop over a model's parameters iterates over."""


class Expressions(CallValues):
    def value(self, node: ast.expr | None) -> Value:
        match node:
            case None | ast.Constant():
                return EQUAL
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self.call_value(node)
            case ast.Compare():
                return self._compare(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.IfExp():
                test = self.truth(node.test)
                self._scope.test(node.test, test)
                return decided_by(join(self.value(node.body), self.value(node.orelse)), test)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.NamedExpr():
                value = self.value(node.value)
                self._scope.env[node.target.id] = value
                return value
            case ast.Lambda():
                return UNKNOWN
            case ast.Yield() | ast.YieldFrom():
                self._scope.yielded(self.value(node.value))
                return UNKNOWN
            case ast.Tuple():
                parts = tuple(self.value(e) for e in node.elts)
                return replace(self._displayed(node.elts), parts=parts)
            case ast.Set():
                inner = self._displayed(node.elts)
                unordered = strongest(inner.extent | {self._unordered(node)})
                return replace(inner, extent=unordered, is_container=True)
            case ast.List():
                return replace(self._displayed(node.elts), is_container=True)
            case ast.Dict():
                # A key of None is `**other`.
                spread = [ast.Starred(v) for k, v in zip(node.keys, node.values, strict=True) if k is None]
                plain = [v for k, v in zip(node.keys, node.values, strict=True) if k is not None]
                return replace(self._displayed([*spread, *plain, *filter(None, node.keys)]), is_container=True)
            case ast.BoolOp():
                return self._connected(node, [self.value(v) for v in node.values])
            case ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                return _in_text(join(*(self.value(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))))
            case ast.BinOp():
                value = combined(self.value(node.left), self.value(node.right))
                if not is_difference_of_keys(node):
                    return value
                return replace(value, extent=strongest(value.extent | {self._unordered(node)}), equal=False, made=False)
            case _:
                return join(*(self.value(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)))

    def _displayed(self, elements: Sequence[ast.expr]) -> Value:
        """`[a, b]` has two elements on each rank, whatever they are; `[*a]` has as many as `a`."""
        values = [(e, self.value(e.value if isinstance(e, ast.Starred) else e)) for e in elements]
        inner = join(*(v for _, v in values))
        extent = frozenset[Reason]().union(*(v.extent for e, v in values if isinstance(e, ast.Starred)))
        return replace(inner, extent=strongest(extent), parts=())

    def truth(self, node: ast.expr) -> Value:
        """A condition: of a container it only asks whether it is empty."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                return self.truth(node.operand)
            case ast.BoolOp():
                return self._connected(node, [self.truth(v) for v in node.values])
            case _:
                value = self.value(node)
                return value.presence if value.is_container else value

    def _connected(self, node: ast.BoolOp, values: list[Value]) -> Value:
        """`a and b`: whether `b` is evaluated depends on `a`."""
        for operand, value in zip(node.values[:-1], values, strict=False):
            self._scope.test(operand, value)
        return join(*values)

    def _name(self, node: ast.Name) -> Value:
        if is_world_word(node.id) or is_device_word(node.id):
            return EQUAL
        value = self._scope.name(node.id)
        if is_setting_word(node.id):
            # A setting that travels with the data does not count as data.
            content, extent = (
                frozenset(r for r in reasons if r.origin is not Origin.LOCAL_DATA)
                for reasons in (value.content, value.extent)
            )
            value = replace(value, content=content, extent=extent)
        if value.equal or value.content:
            return value
        if is_rank_word(node.id) and not self._is_about_matrices(node.id):
            return join(value, self._rank(node))
        if is_loader_word(node.id) and not node.id.isupper():  # `MICRO_BATCHES` is a number written in the source
            return join(value, self._loaded(node))
        function = self._scope.function
        if node.id in function.params and is_data_word(node.id) and not is_setting(node.id, function):
            return replace(value, content=self._data(node))
        return value

    def _is_about_matrices(self, name: str) -> bool:
        """`rank` in code for low-rank adapters is the size of a matrix."""
        function = self._scope.function
        named = (function.name, *([function.owner.name] if function.owner else []))
        return name == "rank" and any(is_low_rank_word(n) for n in named)

    def _loaded(self, node: ast.expr) -> Value:
        extent = self._reason(Origin.LOCAL_DATA, Strength.POSSIBLE, node, "ranks may have different numbers of batches")
        return Value(extent=frozenset({extent}))

    def _data(self, node: ast.expr) -> Reasons:
        return frozenset({self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, "it is this rank's own data")})

    def _attribute(self, node: ast.Attribute) -> Value:
        if is_world_word(node.attr) or is_device_word(node.attr):
            return EQUAL
        known = self._scope.attribute(node)
        if known is not None and (known.equal or known.content or known.params):
            return known
        if (is_rank_word(node.attr) and not self._is_size_of_matrix(node)) or asks_for_the_root(node):
            return self._rank(node)
        if is_local_attribute(node.attr):
            return Value(self._data(node))
        if node.attr in {"should_save", "should_log"} and last_word(node.value).endswith("args"):
            # Of Transformers' arguments: whether this process is the one that writes. A trainer's control has others.
            return self._rank(node)
        if node.attr in TYPE_LIKE:
            return UNKNOWN
        if node.attr in MEASURES:
            return self._measured(node, self.value(node.value))
        if is_loader_word(node.attr):
            return self._loaded(node)
        if known is not None:
            return known
        if is_loader_word(last_word(node.value)):
            # Of a loader: how it was configured.
            return UNKNOWN
        base = self.value(node.value)
        # An attribute of an object that differs need not differ, unless it is data, or what a file system reports about
        # a file.
        origins = {Origin.LOCAL_DATA, *([Origin.FILES] if node.attr.startswith("st_") else [])}
        carried = frozenset(r for r in base.content if r.origin in origins)
        return Value(carried, equal=base.equal, made=base.made, unless_equal=base.unless_equal)

    def _is_size_of_matrix(self, node: ast.Attribute) -> bool:
        """`config.lora.rank`, and `self.rank` of an adapter."""
        if node.attr != "rank":
            return False
        of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        return self._is_about_matrices("rank") if of_self else is_low_rank_word(spelled(node.value) or "")

    def _compare(self, node: ast.Compare) -> Value:
        operands = [self.value(e) for e in (node.left, *node.comparators)]
        if any(is_minus_one(e) for e in node.comparators) or asks_for_a_rank(node):
            # `LOCAL_RANK != -1`, `rank < 0`: whether the job is distributed, or this process takes part.
            return EQUAL
        empty = self._emptiness(node)
        if empty is not None:
            return empty
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            # Presence, not content.
            return join(*(v.presence for v in operands), *self._gradient(node.left), *self._missing(node))
        if all(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            # `"image" in batch`: fields rarely differ by rank.
            stored = self._stored(node.left, node.comparators[0])
            if stored is not None:
                return stored.presence
            asked = join(operands[0], *(self._measured(node, v) for v in operands[1:]))
            sizes = frozenset[Reason]().union(*(v.extent for v in operands[1:]))
            return _weakened(Value(asked.content - sizes)) if isinstance(node.left, ast.Constant) else asked
        own = self._own_parts(node)
        if own is not None:
            return own
        compared = replace(combined(*operands), parts=(), is_container=False)
        # `batch.get("mode") == "generate"`: a setting that travels with the data.
        return _weakened(compared) if any(is_text(e) for e in node.comparators) else compared

    def _own_parts(self, node: ast.Compare) -> Value | None:
        """`len(norms) > 0`, if a loop over parameters put some of them into the list: ranks hold different parts."""
        asked = asked_for_emptiness(node)
        if not isinstance(asked, ast.Name) or not self._collects_parts(asked.id):
            return None
        text = "a rank may hold none of the parameters that are collected here"
        return differing(self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, text))

    def _collects_parts(self, name: str) -> bool:
        function = self._scope.function
        for call in function.calls:
            match call.func:
                case ast.Attribute(value=ast.Name(id=container), attr="append") if container == name:
                    above = [outer for outer, _ in ancestors(call, function)]
                    asks = any(isinstance(outer, ast.If) for outer in above)
                    loops = (outer for outer in above if isinstance(outer, ast.For))
                    if asks and any(last_word(loop.iter) in _OF_PARTS for loop in loops):
                        return True
                case _:
                    pass
        return False

    def _stored(self, key: ast.expr, container: ast.expr) -> Value | None:
        """What was stored under this key of a container that this function made; a container passed by a caller may
        have had the key before.
        """
        if not isinstance(key, ast.Constant) or not isinstance(container, ast.Name):
            return None
        is_own = container.id not in self._scope.function.params
        return self._scope.env.get(item_name(container.id, key)) if is_own else None

    def _gradient(self, asked: ast.expr) -> Iterator[Value]:
        """`p.grad is None`."""
        if isinstance(asked, ast.Attribute) and asked.attr == "grad":
            text = "a parameter that this rank's data did not use has no gradient"
            yield differing(self._reason(Origin.LOCAL_DATA, Strength.POSSIBLE, asked, text))

    def _missing(self, node: ast.Compare) -> Iterator[Value]:
        """`for batch in loader: if batch is None`: code that asks expects that data can be missing."""
        asked, compared = node.left, node.comparators[0]
        if isinstance(asked, ast.Name) and isinstance(compared, ast.Constant) and self._is_batch(asked.id):
            text = "this rank's data may be left out"
            yield differing(self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, text))

    def _is_batch(self, name: str) -> bool:
        """The variable is the element of a loop over a data loader."""
        for node in branches_and_loops(self._scope.function):
            if isinstance(node, ast.For | ast.AsyncFor) and name in names_in(node.target):
                return any(is_loader_word(word) for word in names_and_attributes_in(node.iter))
        return False

    def _emptiness(self, node: ast.Compare) -> Value | None:
        """`tokens.numel() == 0`: code that asks whether a tensor is empty expects that some data make it so."""
        tensor = asked_for_emptiness(node)
        if tensor is None:
            return None
        value = self.value(tensor)
        if isinstance(node.left, ast.Call) and last_word(node.left) == "len":
            # The length of an arbitrary list proves nothing. A slice or batch of this rank's data may be empty on this rank alone.
            is_part = isinstance(tensor, ast.Subscript) or self._is_batch(last_word(tensor))
            is_data = is_part and any(r.origin is Origin.LOCAL_DATA for r in value.content)
            if value.is_container or value.extent or not is_data:
                return None
        elif value.equal or value.reasons or is_parameter_word(last_word(tensor)):
            return None
        reason = self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, "this rank's data may leave nothing here")
        if value.params:
            return Value(unless_equal=frozenset((p, reason) for p in value.params))
        return differing(reason)

    def _subscript(self, node: ast.Subscript) -> Value:
        environment = self._environment(node.value, node.slice)
        if environment is not None:
            return environment
        base, index = self.value(node.value), self.value(node.slice)
        if is_text(node.slice):
            kept = self._scope.env.get(item_name(last_word(node.value), node.slice))
            base = kept if kept is not None and isinstance(node.value, ast.Name) else of_one_item(base, node.slice)
        value = join(base, replace(index, extent=NO_REASONS))
        is_found = isinstance(node.value, ast.Call) and last_word(node.value) in {"where", "nonzero", "unique"}
        if not isinstance(node.slice, ast.Slice) and not is_found:
            value = replace(value, extent=NO_REASONS, is_container=False)
        if isinstance(node.slice, ast.Slice) and any(r.origin is Origin.RANK for r in self._stepped(node.slice)):
            text = "ranks get different numbers of elements unless these divide evenly"
            return replace(value, extent=frozenset({self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, text)}))
        if is_mask(node.slice) and not value.equal:
            text = "how much a mask selects depends on this rank's data"
            reason = self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, text, of_amount=True)
            return replace(value, extent=frozenset({reason}))
        return value

    def _stepped(self, part: ast.Slice) -> Reasons:
        """`xs[rank::world_size]`."""
        return self.value(part.lower).reasons if part.step is not None and part.lower is not None else NO_REASONS

    def _environment(self, mapping: ast.expr, key: ast.expr) -> Value | None:
        dotted = self._resolver.dotted(mapping, self._scope.function)
        if dotted != "os.environ" or not isinstance(key, ast.Constant):
            return None
        source = next((s for s in self._apis.sources if key.value in s.environment), None)
        return differing(self._of_source(source, key)) if source else EQUAL

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        extent: Reasons = NO_REASONS
        content: list[Value] = []
        kept = dict(self._scope.env)
        for generator in node.generators:
            iterated = self.value(generator.iter)
            self._scope.test(generator.iter, iterated)
            self._scope.env.update(dict.fromkeys(names_in(generator.target), self.element(generator.iter, iterated)))
            tests = [self.truth(test) for test in generator.ifs]
            extent |= iterated.extent.union(*(t.reasons for t in tests))
            content.append(
                iterated if not tests else replace(iterated, equal=iterated.equal and all(t.equal for t in tests))
            )
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = join(*(self.value(p) for p in parts))
        self._scope.env.clear()
        self._scope.env.update(kept)
        if isinstance(node, ast.SetComp):
            extent |= {self._unordered(node)}
        equal = inner.equal and all(c.equal for c in content)
        return replace(inner, extent=strongest(extent), equal=equal, parts=(), is_container=True)

    def element(self, iterable: ast.expr, iterated: Value) -> Value:
        """One element of an iterable: its content, not the number of elements."""
        item = replace(iterated, extent=NO_REASONS, parts=(), is_container=False)
        if is_loader_word(last_word(iterable)) and not item.equal:
            # The loader is the same on all ranks; its batches are not.
            item = replace(item, content=strongest(item.content | self._data(iterable)))
        if isinstance(iterable, ast.Call) and iterable.args and isinstance(iterable.func, ast.Name):
            if iterable.func.id == "enumerate":
                return replace(item, parts=(EQUAL, self.element(iterable.args[0], iterated)))
            if iterable.func.id in {"tqdm", "iter", "list", "reversed", "islice"}:
                return self.element(iterable.args[0], iterated)
            if iterable.func.id == "zip":
                return replace(item, parts=tuple(self.element(a, self.value(a)) for a in iterable.args))
        return item


def _in_text(value: Value) -> Value:
    """A number in a name, such as that of a folder: decisions on names are about their other parts."""
    content = frozenset(r for r in value.content if r.origin not in {Origin.RANK, Origin.TIME})
    return replace(value, content=content, params=frozenset(p for p in value.params if not is_rank_word(p)))


def _weakened(value: Value) -> Value:
    """Data is a weak reason, and what callers pass is none."""
    content, extent = (
        frozenset(replace(r, strength=Strength.POSSIBLE) if r.origin is Origin.LOCAL_DATA else r for r in reasons)
        for reasons in (value.content, value.extent)
    )
    return Value(content, extent, value.equal, value.made)
