"""Analysis of user code: modules, calls, control flow, and which values can differ by rank."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint.source.code import Class, Function, Module
    from forkpoint.source.program import Program, SourceNote, read_program

__all__ = ["Class", "Function", "Module", "Program", "SourceNote", "read_program"]

# Resolved on first use: a diagnosis that finds no source beside the evidence does not pay for reading any.
_HOME = {
    "Class": "forkpoint.source.code",
    "Function": "forkpoint.source.code",
    "Module": "forkpoint.source.code",
    "Program": "forkpoint.source.program",
    "SourceNote": "forkpoint.source.program",
    "read_program": "forkpoint.source.program",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
