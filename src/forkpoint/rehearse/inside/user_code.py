"""What taps need the user's source for: filters, calls inside `try`, and the facts of a DataLoader."""

import ast
import builtins
import functools
import pathlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Final

import torch.utils.data

from forkpoint.rehearse.decisions import asks_for_rank, is_generator, tests_of_list, tests_of_loop, yields_by_data
from forkpoint.rehearse.inside.places import CodePlaces, user_modules
from forkpoint.rehearse.listening import GeneratorFacts, Listener, LoaderFacts

# ---------------------------------------------------------------------------------------------------------------------
# Taps on filters: list comprehensions with `if`, loops that begin with `if ...: continue`, generators, and `x[mask]`.
#
# Filters are not calls that could be replaced, so the user's modules are compiled with a call around each; line numbers stay. A
# script that is started as a new process (`--cold`) is compiled before we run: there, only modules that it imports have taps.


_KEPT: Final = "__forkpoint_kept__"
_EACH: Final = "__forkpoint_each__"
_ITEM: Final = "__forkpoint_item__"
_YIELDING: Final = "__forkpoint_yielding__"
_BOUND: Final = "__forkpoint_bound__"
_SLICE: Final = "__forkpoint_slice__"

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller


def open_filters(
    listener: Listener, places: CodePlaces, is_mask: Callable[[Any], bool], tell_try: Callable[[FrameType, Any], None]
) -> None:
    """Installs the taps for modules that are loaded from now on. `is_mask`: of tensors. `tell_try`: gets methods called in a `try`."""

    def bound(method: Any) -> Any:
        tell_try(_frame(1), method)
        return method

    def kept(values: list[Any]) -> list[Any]:
        site = places.at(_frame(1))
        return values if site is None else listener.kept(site, values)

    def each(values: Any) -> Iterator[Any]:
        site = places.at(_frame(1))
        return iter(values) if site is None else listener.each(site, iter(values))

    def yielding(by_data: bool) -> Any:
        def around(function: Any) -> Any:
            facts = GeneratorFacts(function.__name__, by_data)

            @functools.wraps(function)
            def made(*args: Any, **named: Any) -> Any:
                items = function(*args, **named)
                site = places.at(_frame(1))
                return items if site is None else listener.generated(site, facts, items)

            return made

        return around

    taps = {_BOUND: bound, _YIELDING: yielding, _KEPT: kept, _EACH: each, **_reading(listener, places, is_mask)}
    for name, tap in taps.items():
        setattr(builtins, name, tap)
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        if not places.is_own(loader.path):
            return original(loader, fullname)
        tree = ast.parse(Path(loader.path).read_bytes(), loader.path)
        return compile(ast.fix_missing_locations(_Around().visit(tree)), loader.path, "exec", dont_inherit=True)

    kind: Any = SourceFileLoader
    kind.get_code = get_code


def _reading(listener: Listener, places: CodePlaces, is_mask: Callable[[Any], bool]) -> dict[str, Callable[..., Any]]:
    """The taps on `x[...]`."""

    def item(values: Any, index: Any) -> Any:
        site = places.at(_frame(1)) if is_mask(index) else None
        return values[index if site is None else listener.selecting(site, index)]

    def part(values: Any, *ends: Any) -> Any:
        taken = values[slice(*ends)]
        site = places.at(_frame(1)) if type(taken) is list else None
        return taken if site is None else listener.taken(site, taken)

    return {_ITEM: item, _SLICE: part}


class _Around(ast.NodeTransformer):
    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        return _called(_KEPT, node) if tests_of_list(node) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`x[mask]`: whatever is read by an index that may be a mask. `x[a:b]`: perhaps a batch, unless it is the rank's share."""
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load) and not asks_for_rank([node]):
            ends = (
                end or ast.copy_location(ast.Constant(None), node)
                for end in (node.slice.lower, node.slice.upper, node.slice.step)
            )
            return _called(_SLICE, node.value, *ends)
        never = isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant | ast.JoinedStr)
        return node if never or not isinstance(node.ctx, ast.Load) else _called(_ITEM, node.value, node.slice)

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """`a.method()` in its body: the object may belong to a library."""
        if node.handlers:
            for call in find_guarded_calls(ast.Module([node], [])):
                if isinstance(call.func, ast.Attribute) and isinstance(call.func.ctx, ast.Load):
                    call.func = _called(_BOUND, call.func)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if tests_of_loop(node):
            node.iter = _called(_EACH, node.iter)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Skips special methods, and functions with a decorator, which may not be plain generators."""
        self.generic_visit(node)
        if not node.decorator_list and not node.name.startswith("__") and is_generator(node):
            node.decorator_list = [_called(_YIELDING, ast.copy_location(ast.Constant(yields_by_data(node)), node))]
        return node


def _called(name: str, *values: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), values[0])
    return ast.copy_location(ast.Call(function, [*values], []), values[0])


# ---------------------------------------------------------------------------------------------------------------------
# Taps on calls inside `try`: the listener may raise what is caught there.


_CONTROL: Final = frozenset({"StopIteration", "StopAsyncIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit",
                             "ImportError", "ModuleNotFoundError", "AttributeError"})  # fmt: skip
"""Caught to end a loop, to exit, or to detect what is installed: not failures that could hit one rank."""

_PATH_READS: Final = ("open", "read_bytes", "read_text")
_COMPUTING: Final = ("builtins", "math", "re", "copy")
"""Their functions (`repr`, `re.match`) ask nothing of the operating system; `open` is of another module."""
_FORMATS: Final = ("json", "pickle", "_pickle")
"""Their functions that work on text in memory (`json.dumps`) ask nothing either; those that write to a file do."""
_NOT_OUTSIDE: Final = (
    "builtins",
    "torch",
    "numpy",
    "collections",
    "pathlib",
    "threading",
    "_thread",
    "logging",
    "forkpoint",
)
"""Objects of these have no connection, process or file that could fail by itself; open files and paths have taps of their own."""


class TryTaps:
    def __init__(self, places: CodePlaces, listener: Listener) -> None:
        self._places, self._listener, self._tries = places, listener, TryTable()

    def tell(self, frame: Any, call: str, *, computes: bool = False) -> None:
        """`computes`: it asks nothing of the operating system."""
        site = self._places.at(frame)
        catches = self._tries.catches(frame) if site is not None else ()
        if computes:
            catches = tuple(kind for kind in catches if not issubclass(kind, OSError))
        if site is not None and catches:
            self._listener.guarded(site, call, catches)

    def tell_method(self, frame: Any, method: Any) -> None:
        """Of an object that belongs to a library, if the `try` is for errors of that library, or of the operating system."""
        owner = type(getattr(method, "__self__", None))
        where, at = owner.__module__, self._places.at(frame)
        if at is None or where.startswith(_NOT_OUTSIDE) or self._is_tapped(owner, method):
            return
        library = where.partition(".")[0]
        named = [kind for kind in self._tries.catches(frame) if issubclass(kind, OSError) or _library(kind) == library]
        if named:
            self._listener.guarded(at, method.__name__, tuple(named))

    def _is_tapped(self, owner: type, method: Any) -> bool:
        """It is the user's own, or already has a tap."""
        file = getattr(sys.modules.get(owner.__module__), "__file__", None)
        mine = isinstance(file, str) and self._places.is_own(file)
        return mine or owner in (type(sys), type) or getattr(method, "_rehearsed", False)

    def tap(self, module: Any) -> None:
        wanted = {name for call in find_guarded_calls(parse(module.__file__)) if (name := dotted(call.func))}
        for name in sorted(wanted):
            if "." not in name:
                self._guard_function(module.__dict__, name, look_up(name, module.__dict__))
                continue
            base, _, last = name.rpartition(".")
            owner = look_up(base, module.__dict__)
            if type(owner) is type(module):
                self._guard_function(owner.__dict__, last, getattr(owner, last, None))
            elif owner is None or not isinstance(owner, type):
                self._guard_method(last)

    def _guard_method(self, name: str) -> None:
        """A method of an object of unknown type: taps that method in all of the user's classes, and of paths."""
        kinds = [
            v for module in user_modules(self._places) for v in list(module.__dict__.values()) if isinstance(v, type)
        ]
        for kind in kinds:
            method = vars(kind).get(name)
            if isinstance(method, FunctionType) and self._places.is_own(method.__code__.co_filename):
                setattr(kind, name, self._guarded(method, name))
        if name in _PATH_READS:
            setattr(pathlib.Path, name, self._guarded(getattr(pathlib.Path, name), name))

    def _guard_function(self, names: dict[str, Any], name: str, function: Any) -> None:
        """Only functions: a wrapped class would no longer be a class. Not functions that communicate: a failing network is not
        what we rehearse a `try` for.
        """
        where = getattr(function, "__module__", None) or ""
        plain = callable(function) and not isinstance(function, type)
        if plain and not where.startswith(("torch.distributed", "torch._C", "forkpoint")):
            names[name] = self._guarded(function, name)

    def _guarded(self, function: Any, name: str) -> Any:
        if getattr(function, "_rehearsed", False):
            return function

        where = getattr(function, "__module__", None) or ""
        computes = where in _COMPUTING or (where in _FORMATS and name in ("dumps", "loads"))

        @functools.wraps(function)
        def guarded(*args: Any, **named: Any) -> Any:
            self.tell(_frame(1), name, computes=computes)
            return function(*args, **named)

        guarded._rehearsed = True  # type: ignore[attr-defined] # noqa: SLF001 our own mark
        return guarded


def _library(kind: type) -> str:
    return kind.__module__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class GuardedLines:
    """The statements of one `try` that has handlers."""

    first: int
    last: int
    catches: tuple[str, ...]
    """As written: dotted names; "" for a bare `except`."""


def find_guarded(tree: ast.AST) -> list[GuardedLines]:
    """Inner ones come last, so that the last one that contains a line counts."""
    found: list[GuardedLines] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            caught = tuple(name for handler in node.handlers for name in _names(handler.type))
            wanted = tuple(name for name in caught if name.rpartition(".")[2] not in _CONTROL)
            if wanted:
                found.append(GuardedLines(node.body[0].lineno, node.body[-1].end_lineno or 0, wanted))
    return sorted(found, key=lambda lines: (lines.first, -lines.last))


def find_guarded_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call in the body of a `try` with handlers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            for statement in node.body:
                yield from (part for part in ast.walk(statement) if isinstance(part, ast.Call))


def _names(kind: ast.expr | None) -> Iterator[str]:
    if kind is None:
        yield ""
    for part in kind.elts if isinstance(kind, ast.Tuple) else [kind]:
        name = dotted(part)
        if name:
            yield name


def dotted(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


class TryTable:
    """What the `try` around a line catches. Files are parsed on first use."""

    def __init__(self) -> None:
        self._files: dict[str, list[GuardedLines]] = {}

    def catches(self, frame: FrameType) -> tuple[type[BaseException], ...]:
        """Exception types caught around the call that this frame is making; () if none."""
        name, line = frame.f_code.co_filename, frame.f_lineno
        if name not in self._files:
            self._files[name] = find_guarded(parse(name))
        around = [lines for lines in self._files[name] if lines.first <= line <= lines.last]
        if not around:
            return ()
        kinds = [look_up(text, frame.f_globals) for text in around[-1].catches]
        return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException))


def look_up(name: str, names: dict[str, Any]) -> Any:
    """Resolves a dotted name in a module; None if it does not exist. "" is a bare `except`."""
    if not name:
        return Exception
    first, *rest = name.split(".")
    value = names.get(first, getattr(builtins, first, None))
    for part in rest:
        value = getattr(value, part, None)
    return value


def parse(filename: str) -> ast.Module:
    """An empty module if the source cannot be read."""
    try:
        return ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


# ---------------------------------------------------------------------------------------------------------------------
# Facts about a DataLoader: how many batches it has, how data is shared out, and how it collates samples.


def loader_facts(loader: Any, number: int, places: CodePlaces) -> LoaderFacts:
    sampler, batch_sampler = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    inner = getattr(batch_sampler, "sampler", None)
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError):
        batches = 0
    own_collate = loader.collate_fn not in (torch.utils.data.default_collate, torch.utils.data.default_convert)
    return LoaderFacts(
        number=number,
        batches=batches,
        iterable=iterable,
        shared_out=not iterable and any(_shares_out(s) for s in (sampler, batch_sampler, inner)),
        own_collate=own_collate,
        drops=own_collate and _drops(loader.collate_fn, places),
        workers=loader.num_workers,
        samples=None if iterable else loader.dataset,
        batch_size=loader.batch_size or 0,
        collate=loader.collate_fn,
    )


def _shares_out(sampler: Any) -> bool:
    """By the attributes of torch's DistributedSampler and similar samplers."""
    return any(hasattr(sampler, name) for name in ("num_replicas", "num_processes"))


def _drops(collate: Any, places: CodePlaces) -> bool:
    """Whether the user's own collate function can drop samples, because it filters them."""
    while hasattr(collate, "func"):  # functools.partial
        collate = collate.func
    code = getattr(collate if hasattr(collate, "__code__") else vars(type(collate)).get("__call__"), "__code__", None)
    if code is None or not places.is_own(code.co_filename):
        return False
    functions = [n for n in ast.walk(parse(code.co_filename)) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    own = next((function for function in functions if _first_line(function) == code.co_firstlineno), None)
    return own is not None and any(map(_filters, ast.walk(own)))


def _first_line(function: ast.FunctionDef | ast.Lambda) -> int:
    decorators = function.decorator_list if isinstance(function, ast.FunctionDef) else []
    return decorators[0].lineno if decorators else function.lineno


def _filters(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Continue)
        or (isinstance(node, ast.comprehension) and bool(node.ifs))
        or (isinstance(node, ast.Name) and node.id == "filter")
    )
