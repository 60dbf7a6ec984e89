"""Lines of the source that was read. No path ever reaches the file system."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact
from forkpoint.agent.tools.sources import analysis_of, find_module, line_of, name_module
from forkpoint.agent.wire import Wire
from forkpoint.bridge.attach import relative
from forkpoint.source.code import Module

_MAX_AROUND = 29
_USUAL = 10


class Arguments(Wire):
    file: str | None
    """As under the source root (`train.py`, `pkg/loop.py`); null: which files there are."""
    line: int | None
    """null: which functions the file has."""
    around: int | None
    """So many lines before and after; null: 10."""


def read_source(case: Case, asked: Arguments) -> Sequence[Fact]:
    if asked.file is None:
        return answer(_files(case), "name a file")
    module = find_module(case, asked.file)
    if asked.line is None:
        return answer(_outline(case, module), "name a line")
    if not 1 <= asked.line <= len(module.lines):
        raise Refused(f"{case.clean(name_module(case, module))} has {len(module.lines)} lines")
    around = min(max(_USUAL if asked.around is None else asked.around, 0), _MAX_AROUND)
    shown = range(max(1, asked.line - around), min(len(module.lines), asked.line + around) + 1)
    name = name_module(case, module)
    written = ((number, line_of(module, number)) for number in shown)
    return answer((fact(case, f"{name}:{n}", text) for n, text in written if text.strip()), "ask for fewer lines")


def _files(case: Case) -> Iterator[Fact]:
    """Those that communicate first."""
    analysis = analysis_of(case)
    talking = {function.module.path for function in analysis.communicating()}
    for module in sorted(analysis.program.modules.values(), key=lambda m: (m.path not in talking, m.path)):
        says = f"{len(module.lines)} lines, {len(module.functions) - 1} functions"
        told = f"{says}; comes to a collective" if module.path in talking else says
        yield fact(case, name_module(case, module), told)
    for note in analysis.program.notes:
        yield fact(case, relative(note.file, case.source), f"not read: {note.text}")


def _outline(case: Case, module: Module) -> Iterator[Fact]:
    reaches = analysis_of(case).communication.reaches
    for function in sorted(module.functions.values(), key=lambda f: (f.line, f.name)):
        reach = reaches.get(function)
        says = f"{function.name}; comes to {reach.api.op}" if reach else function.name
        yield fact(case, f"{name_module(case, module)}:{function.line}", says)


TOOL = Tool(
    name="read_source",
    description=(
        "Lines of the training program around a line; with line null the functions of a file, with file null the files. "
        "Only files that were given with the case."
    ),
    arguments=Arguments,
    answer=read_source,
)
