"""What one walk through a function found."""

import ast
from dataclasses import dataclass, field

from forkpoint.source.value import UNKNOWN, Value


@dataclass(slots=True, eq=False)
class Facts:
    tests: dict[ast.expr, Value] = field(default_factory=dict)
    """Conditions, loop ranges and match subjects."""
    arguments: dict[ast.expr, Value] = field(default_factory=dict)
    """What calls pass."""
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    made_equal: set[str] = field(default_factory=set)
    """Parameters that a collective makes equal in place."""
    written: dict[str, Value] = field(default_factory=dict)
    """Attributes it sets, of whatever object, by name."""
    writes: list[tuple[ast.Attribute, Value]] = field(default_factory=list)
    """The same, one by one."""
    exits: Value = UNKNOWN
    """Decisions after which it had returned or not."""
