"""Which exceptions are raised on all ranks alike, more often than not."""

import ast

from forkpoint.source.syntax import last_word

_ALIKE = frozenset({
    "ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "AttributeError", "NotImplementedError",
    "StopIteration", "StopAsyncIteration", "GeneratorExit", "TypeError", "NameError", "KeyError", "PackageNotFoundError",
})  # fmt: skip
"""Of the program, the installation or the end of data."""


def is_alike(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(last_word(t) in _ALIKE for t in types)
