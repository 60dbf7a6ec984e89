"""Names that a patch introduces: which are refused, and which are pointed out to the reader."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from forkpoint.source.code import Module, spelled

_REFUSED: Final = frozenset({
    "exec", "eval", "compile", "__import__", "breakpoint", "globals", "builtins", "importlib", "runpy",
    "subprocess", "pty", "multiprocessing", "socket", "socketserver", "ssl", "asyncio", "urllib", "urllib3",
    "http", "ftplib", "smtplib", "telnetlib", "xmlrpc", "requests", "httpx", "aiohttp", "paramiko", "ctypes", "cffi",
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "os.system", "os.popen",
    "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.putenv", "os.startfile", "pdb", "webbrowser", "torch.hub",
    "torch.package", "torch.utils.cpp_extension",
})  # fmt: skip
"""They run, fetch or unpack code that a reader of the patch does not see."""
_REFUSED_STARTS: Final = ("os.exec", "os.spawn", "os.posix_spawn")
_REFUSED_ENDS: Final = frozenset(
    {"system", "popen", "Popen", "check_call", "check_output", "urlopen", "execv", "execve"}
)
"""Refused as an attribute of anything."""
_TOLD: Final = frozenset({
    "open", "getattr", "setattr", "delattr", "vars", "locals", "io", "os", "sys", "shutil", "pathlib", "tempfile", "signal",
    "threading", "torch.load", "torch.save", "torch.ops", "numpy.load", "numpy.fromfile",
})  # fmt: skip


def refused_names(fresh: Iterable[str]) -> list[str]:
    """Those that a patch may not introduce. Dunder attributes can reach anything, so they are refused, too."""
    return [name for name in fresh if _is_refused(name)]


def told_names(fresh: Iterable[str]) -> list[str]:
    """Those to point out: they touch files, the process, or attributes by name."""
    return [name for name in fresh if any(part in _TOLD for part in _prefixes(name))]


def fresh_names(before: Iterable[ast.AST], after: Iterable[ast.AST], old: Module, new: Module) -> list[str]:
    """Dotted names, with import aliases resolved, that occur more often after the patch than before."""
    more = Counter(_names(after, new)) - Counter(_names(before, old))
    return sorted(more)


def fresh_imports(before: Iterable[ast.AST], after: Iterable[ast.AST]) -> list[str]:
    more = Counter(_imports(after)) - Counter(_imports(before))
    return sorted(more)


def _is_refused(name: str) -> bool:
    parts = name.split(".")
    hidden = any(part.startswith("__") and part.endswith("__") for part in parts[1:])
    return (
        hidden
        or name.startswith(_REFUSED_STARTS)
        or any(part in _REFUSED for part in _prefixes(name))
        or (len(parts) > 1 and parts[-1] in _REFUSED_ENDS)
        or parts[0] == "__builtins__"
    )


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _names(nodes: Iterable[ast.AST], module: Module) -> Iterator[str]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute):
                yield _dotted(inner, module)
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                yield from _imported(inner)


def _dotted(node: ast.Name | ast.Attribute, module: Module) -> str:
    """`o.system` with `import os as o` is `os.system`; an attribute of an expression is `?.attribute`."""
    text = spelled(node)
    if text is None:
        return f"?.{node.attr}" if isinstance(node, ast.Attribute) else "?"
    root, dot, rest = text.partition(".")
    return f"{module.imports.get(root, root)}{dot}{rest}"


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                yield from _imported(inner)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    base = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
    yield from (f"{base}{alias.name}" for alias in node.names)
