"""Figures of the source tree: lines, modules, import chains, repetition, and what one dump passes. `python -m bench.house [ROOT]`."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable
from functools import cache
from pathlib import Path

_SMALL = 30
_STRETCH = 6
"""Lines that are the same at two places."""
_TRACED = """
import sys
from forkpoint.evidence import read
from forkpoint.pipeline import diagnose
import forkpoint
own, codes = forkpoint.__file__.removesuffix("__init__.py"), set()
def note(frame, event, arg):
    codes.add(frame.f_code)
sys.setprofile(note)
capture = read(sys.argv[1:])
sys.setprofile(None)
reading = {c for c in codes if c.co_filename.startswith(own)}
sys.setprofile(note)
diagnose(capture)
sys.setprofile(None)
codes = {c for c in codes if c.co_filename.startswith(own)}
for found in (reading, codes):
    print(len(found), len({c.co_filename for c in found}))
"""


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "src"
    modules = {_name(path, root): path for path in sorted((root / "forkpoint").rglob("*.py"))}
    trees = {name: ast.parse(path.read_bytes()) for name, path in modules.items()}
    lengths = [len(path.read_text().splitlines()) for path in modules.values()]
    imports = {name: _imports(tree, modules.keys()) - {name} for name, tree in trees.items()}
    users = Counter(target for targets in imports.values() for target in targets)
    classes = Counter(n.name for tree in trees.values() for n in tree.body if isinstance(n, ast.ClassDef))
    stems = Counter(name.rpartition(".")[2] for name, path in modules.items() if path.name != "__init__.py")
    public = {name: count for name, count in classes.items() if count > 1 and not name.startswith("_")}
    rows = [
        ("lines", sum(lengths)),
        ("modules", len(modules)),
        ("median lines of a module", sorted(lengths)[len(lengths) // 2]),
        (f"modules under {_SMALL} lines, doors of packages aside", _count_small(modules)),
        ("modules that one other module imports", sum(count == 1 for count in users.values())),
        ("longest import chain", _longest_chain(imports)),
        ("class names used twice or more", len(public)),
        ("module names used twice or more", sum(count > 1 for count in stems.values())),
        (f"stretches of {_STRETCH} lines that stand at two places or more", _count_repeated(modules.values())),
        *_passed(root),
    ]
    for what, figure in rows:
        print(f"{figure:>8}  {what}")


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, known: Container[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in known}


def _count_small(modules: dict[str, Path]) -> int:
    texts = [path.read_text() for path in modules.values() if path.name != "__init__.py"]
    return sum(len(text.splitlines()) < _SMALL for text in texts)


def _longest_chain(imports: dict[str, set[str]]) -> int:
    """Of modules that import one another, cycles through functions and type checking aside."""
    busy: set[str] = set()

    @cache
    def depth(name: str) -> int:
        busy.add(name)
        below = [depth(target) for target in sorted(imports[name]) if target not in busy]
        busy.discard(name)
        return 1 + max(below, default=0)

    sys.setrecursionlimit(10_000)
    return max(depth(name) for name in imports)


def _count_repeated(paths: Iterable[Path]) -> int:
    """Blank lines, imports and lines of brackets alone aside."""
    seen: Counter[tuple[str, ...]] = Counter()
    for path in paths:
        lines = [line.strip() for line in path.read_text().splitlines()]
        lines = [line for line in lines if line.strip("()[]{},: ") and not line.startswith(("import ", "from ", "#"))]
        seen.update({tuple(lines[at : at + _STRETCH]) for at in range(len(lines) - _STRETCH + 1)})
    return sum(count > 1 for count in seen.values())


def _passed(root: Path) -> list[tuple[str, int]]:
    """Functions and files that one dump passes, by a profile; the compiled decoder is off."""
    dump = Path(__file__).parents[1] / "cases" / "0001" / "capture" / "nccl_trace_rank_0"
    environ = os.environ | {"PYTHONPATH": str(root.resolve()), "FORKPOINT_NATIVE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _TRACED, dump], env=environ, capture_output=True, text=True, check=True
    )
    read, judged = ([int(number) for number in line.split()] for line in done.stdout.splitlines())
    told = ("functions a dump passes until it is a capture", "files", "functions until it is a verdict", "files")
    return list(zip(told, (*read, *judged), strict=True))


if __name__ == "__main__":
    main()
