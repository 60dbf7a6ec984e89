"""What the interpreter found in one function."""

import ast
from dataclasses import dataclass, field

from forkpoint.source.value import UNKNOWN, Value


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
