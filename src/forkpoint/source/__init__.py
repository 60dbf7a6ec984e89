"""Analysis of user code: modules, calls, control flow, and which values can differ by rank."""

from forkpoint.source.code import Class, Function, Module
from forkpoint.source.program import Program, SourceNote, read_program

__all__ = ["Class", "Function", "Module", "Program", "SourceNote", "read_program"]
