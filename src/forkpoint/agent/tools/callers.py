"""Who calls a function, and what it calls."""

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact, names
from forkpoint.agent.tools.sources import analysis_of, find_module, place
from forkpoint.agent.wire import Wire
from forkpoint.source.code import Function
from forkpoint.source.syntax import shortened


class Arguments(Wire):
    function: str
    """`Trainer.fit`, or `fit` where only one is called so."""
    file: str | None
    """As under the source root; null: any."""


def callers(case: Case, asked: Arguments) -> Sequence[Fact]:
    function = _find(case, asked)
    return answer(
        chain(_itself(case, function), _called_by(case, function), _calls(case, function)), "read_source has the rest"
    )


def _find(case: Case, asked: Arguments) -> Function:
    program = analysis_of(case).program
    modules = program.modules.values() if asked.file is None else (find_module(case, asked.file),)
    known = [function for module in modules for function in module.functions.values()]
    exact = [f for f in known if f.name == asked.function]
    found = exact or [f for f in known if f.short == asked.function]
    if len(found) == 1:
        return found[0]
    if found:
        spelled = [case.clean(f"{f.name} in {place(case, f, f.line)}") for f in found]
        raise Refused(f"several functions are called so: {names(spelled)}")
    raise Refused("no such function in the source; read_source with line null lists those of a file")


def _itself(case: Case, function: Function) -> Iterator[Fact]:
    communication = analysis_of(case).communication
    reach = communication.reaches.get(function)
    if reach is None:
        yield fact(case, place(case, function, function.line), f"{function.name}: comes to no collective that is known")
        return
    way = [place(case, f, call.lineno) for f, call in communication.path(reach)]
    through = f" through {', '.join(way)}" if way else ""
    says = f"{function.name}: comes to {reach.api.op} by its line {reach.call.lineno}{through}"
    yield fact(case, place(case, function, function.line), says)


def _called_by(case: Case, function: Function) -> Iterator[Fact]:
    sites = list(analysis_of(case).resolver.call_sites(function))
    for call, caller in sorted(sites, key=lambda site: (site[1].module.path, site[0].lineno, site[0].col_offset)):
        says = f"{caller.name} calls {function.name}: `{_written(call, caller)}`"
        yield fact(case, place(case, caller, call.lineno), says)
    if not sites:
        says = f"no call of {function.name} was found: a library may call it, or a name that cannot be followed"
        yield fact(case, place(case, function, function.line), says)


def _calls(case: Case, function: Function) -> Iterator[Fact]:
    for call in function.calls:
        says = _tell_call(case, call, function)
        if says is not None:
            yield fact(
                case, place(case, function, call.lineno), f"{function.name} calls `{_written(call, function)}`: {says}"
            )


def _tell_call(case: Case, call: ast.Call, function: Function) -> str | None:
    """None: a library's function, of which nothing is known."""
    analysis = analysis_of(case)
    api = analysis.communication.api(call, function)
    if api is not None:
        return f"communicates ({api.kind})"
    callees = analysis.resolver.callees(call, function)
    if not callees.functions:
        return None
    spelled = [f"{f.name} in {place(case, f, f.line)}" for f in callees.functions]
    reach = analysis.communication.reach(call, function)
    comes_to = f", which comes to {reach.api.op}" if reach else ""
    return f"{'' if callees.exact else 'one of '}{', '.join(spelled)}{comes_to}"


def _written(call: ast.Call, function: Function) -> str:
    return shortened(function.module.source(call))


TOOL = Tool(
    name="callers",
    description="Who calls a function of the training program, and which functions and collectives it calls.",
    arguments=Arguments,
    answer=callers,
)
