"""Figures of the source tree: lines, modules, import chains, repeated names. `python -m bench.house [ROOT]`."""

import ast
import sys
from collections import Counter
from collections.abc import Container
from functools import cache
from pathlib import Path

_SMALL = 30


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


if __name__ == "__main__":
    main()
