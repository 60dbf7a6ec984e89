"""Files and functions of the source as a model names them and as facts name them. Nothing is opened: what the program's
reader read is all there is.
"""

from difflib import get_close_matches

from forkpoint.agent.case import Case
from forkpoint.agent.tool import Refused
from forkpoint.agent.tools.answers import names
from forkpoint.bridge.attach import relative
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function, Module

_LONGEST = 1000
"""Of a path: longer ones are compared with nothing."""


def analysis_of(case: Case) -> Analysis:
    if case.analysis is None:
        raise Refused("no source was given with this case")
    return case.analysis


def name_module(case: Case, module: Module) -> str:
    """As it lies under the source root."""
    return relative(module.path, case.source)


def find_module(case: Case, file: str) -> Module:
    """The module that is shown under this name, or the only one whose path ends so."""
    analysis = analysis_of(case)
    known = {case.clean(name_module(case, m)): m for m in analysis.program.modules.values()}
    if file in known:
        return known[file]
    ending = [module for shown, module in known.items() if file and shown.endswith(f"/{file}")]
    if len(ending) == 1:
        return ending[0]
    near = get_close_matches(file[:_LONGEST], known, n=5, cutoff=0.5)
    raise Refused(f"no such file was read; there are {names(near or sorted(known))}")


def line_of(module: Module, line: int) -> str:
    """As written; an empty text where there is no such line."""
    return module.lines[line - 1].decode("utf-8", "replace").rstrip("\r\n") if 0 < line <= len(module.lines) else ""


def function_of(case: Case, module: Module, line: int) -> Function:
    found = module.function_at(line) if line > 0 else None
    if found is None:
        raise Refused(f"{case.clean(name_module(case, module))} has {len(module.lines)} lines")
    return found


def place(case: Case, function: Function, line: int) -> str:
    return f"{name_module(case, function.module)}:{line}"
