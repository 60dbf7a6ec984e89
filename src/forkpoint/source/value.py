"""What is known about a value across ranks: that it is equal, why it can differ, or nothing."""

import ast
from dataclasses import dataclass, field, replace
from typing import TypeVar

from forkpoint.source.apis import Origin, Strength

_Member = TypeVar("_Member")
_KEPT = 3
"""Reasons per value. The strongest are enough, and large sets make joins slow."""
_ORDER = {Strength.CERTAIN: 0, Strength.LIKELY: 1, Strength.POSSIBLE: 2}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a value can differ by rank, and where that starts."""

    origin: Origin
    strength: Strength
    file: str
    line: int
    expression: str
    text: str
    of_amount: bool = False
    """It is about how much there is. Whatever is computed from it element by element has the same amount."""

    @property
    def key(self) -> tuple[int, str, int, str]:
        return (_ORDER[self.strength], self.file, self.line, self.expression)


Reasons = frozenset[Reason]
NO_REASONS: Reasons = frozenset()


@dataclass(frozen=True, slots=True)
class Value:
    content: Reasons = NO_REASONS
    extent: Reasons = NO_REASONS
    """Its length, order or presence can differ."""
    equal: bool = False
    """It is a constant, or the result of a collective. If false and there are no reasons, nothing is known."""
    made: bool = False
    """A collective made it equal."""
    params: frozenset[str] = frozenset()
    """It depends on what the caller passes for these parameters."""
    sizes: frozenset[str] = frozenset()
    """It depends on the length or presence of these parameters."""
    unless_equal: frozenset[tuple[str, Reason]] = frozenset()
    """Reasons that apply unless the parameter is equal on all ranks."""
    sorted_params: frozenset[str] = frozenset()
    """It depends on these parameters, but not on the order of their elements."""
    is_container: bool = False
    """A list, dictionary or set made here: its truth value depends on the number of its elements, not on their values."""
    parts: tuple["Value", ...] = ()
    """The elements, if it is a tuple."""

    @property
    def reasons(self) -> Reasons:
        return self.content | self.extent

    @property
    def may_differ(self) -> bool:
        """It can differ, or can if a parameter does."""
        return bool(self.content or self.extent or self.params or self.sizes or self.unless_equal or self.sorted_params)

    @property
    def presence(self) -> "Value":
        """Whether it exists, and its length."""
        asked = self.params | self.sizes | self.sorted_params
        return Value(self.extent, self.extent, self.equal, self.made, sizes=asked)


UNKNOWN = Value()
EQUAL = Value(equal=True)
MADE_EQUAL = Value(equal=True, made=True)


def join(*values: Value) -> Value:
    if not values:
        return EQUAL
    # Most values are constants, which add nothing.
    others = [v for v in values if v is not EQUAL]
    if len(others) < 2 or all(v is others[0] for v in others):
        found = others[0] if others else EQUAL
        return replace(found, parts=()) if found.parts and len(others) < len(values) else found
    equal = all(v.equal for v in values)
    return Value(
        strongest(_union([v.content for v in others])),
        strongest(_union([v.extent for v in others])),
        equal,
        equal and any(v.made for v in others),
        _union([v.params for v in others]),
        _union([v.sizes for v in others]),
        _union([v.unless_equal for v in others]),
        _union([v.sorted_params for v in others]),
        any(v.is_container for v in others),
        _join_parts(values) if values[0].parts else (),
    )


def _union(sets: list[frozenset[_Member]]) -> frozenset[_Member]:
    """Most are empty, and most of the others the same object."""
    found: frozenset[_Member] = frozenset()
    for each in sets:
        if each and each is not found:
            found = found | each if found else each
    return found


def _join_parts(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Element by element, if all are tuples of the same length."""
    if not values[0].parts or any(len(v.parts) != len(values[0].parts) for v in values):
        return ()
    return tuple(join(*parts) for parts in zip(*(v.parts for v in values), strict=True))


def strongest(reasons: Reasons) -> Reasons:
    return reasons if len(reasons) <= _KEPT else frozenset(sorted(reasons, key=lambda r: r.key)[:_KEPT])


def differing(reason: Reason) -> Value:
    """The value itself can differ, not its length."""
    return Value(content=frozenset({reason}))


def decided_by(value: Value, decision: Value) -> Value:
    """A value that is set or not, depending on a decision."""
    if not decision.may_differ:
        return value
    why = strongest(decision.reasons)
    return replace(
        value,
        content=strongest(value.content | why),
        extent=strongest(value.extent | why),
        equal=False,
        made=False,
        params=value.params | decision.params,
        sizes=value.sizes | decision.sizes,
        unless_equal=value.unless_equal | decision.unless_equal,
        sorted_params=value.sorted_params | decision.sorted_params,
        parts=tuple(decided_by(part, decision) for part in value.parts),
    )


def strength_of(reasons: Reasons) -> Strength | None:
    return min((r.strength for r in reasons), key=_ORDER.__getitem__, default=None)


def is_stronger(one: Reasons, other: Reasons) -> bool:
    return min(_ORDER[r.strength] for r in one) < min(_ORDER[r.strength] for r in other)


def combined(*values: Value) -> Value:
    """The result of arithmetic. What a collective made equal stays so if nothing is known against the other operands:
    `total / world_size`.
    """
    if any(v.made for v in values) and not any(v.reasons or v.unless_equal for v in values):
        return MADE_EQUAL
    return join(*values)


def in_sorted_order(value: Value) -> Value:
    """After sorting, the order does not differ, whatever is passed for its parameters."""
    return replace(
        value,
        content=frozenset(r for r in value.content if r.origin is not Origin.ORDER),
        extent=frozenset(r for r in value.extent if r.origin is not Origin.ORDER),
        params=frozenset(),
        sorted_params=value.params | value.sorted_params,
    )


def settle(value: Value, passed: dict[str, Value]) -> Value:
    """Replace parameters by what is passed for them."""
    parts = tuple(settle(part, passed) for part in value.parts)
    mine = Value(value.content, value.extent, value.equal, value.made)
    theirs = [passed.get(p, UNKNOWN) for p in value.params]
    theirs += [passed.get(p, UNKNOWN).presence for p in value.sizes]
    theirs += [in_sorted_order(passed.get(p, UNKNOWN)) for p in value.sorted_params]
    local = {r for p, r in value.unless_equal if not passed.get(p, UNKNOWN).equal}
    settled = join(mine, *theirs, Value(frozenset(local))) if theirs or local else mine
    return replace(settled, parts=parts, is_container=value.is_container)


# ---------------------------------------------------------------------------------------------------------------------
# What the interpreter found in one function.


@dataclass(slots=True, eq=False)
class Facts:
    tests: dict[ast.expr, Value] = field(default_factory=dict)
    """Values of conditions, iterables and match subjects."""
    arguments: dict[ast.expr, Value] = field(default_factory=dict)
    """Values of arguments of calls."""
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    made_equal: set[str] = field(default_factory=set)
    """Parameters that a collective makes equal in place."""
    written: dict[str, Value] = field(default_factory=dict)
    """Values of the attributes it sets, of any object, by name."""
    writes: list[tuple[ast.Attribute, Value]] = field(default_factory=list)
    """Each assignment to an attribute."""
    exits: Value = UNKNOWN
    """Decisions that determine whether it returned early."""
