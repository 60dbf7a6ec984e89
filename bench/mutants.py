"""How many small mistakes in the engine do the tests notice? Each mutant changes one place of one module in a copy of src/.

    python -m bench.mutants --count 40 --seed 1 tests/test_cases.py tests/test_detectors.py

The same seed makes the same mutants, so that two sets of tests can be compared: `--tests` is another checkout whose tests
are run against the mutants of this one's source.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("align", "diverge", "judge", "detectors", "packed", "ingest")
LIMIT_S = 1800.0
"""Of CPU-bound tests that take a minute: a mutant that takes longer hangs, which is noticed."""

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    module: Path
    """Below src/."""
    what: str
    line: int
    text: str
    """The module with the mistake in it."""


def change_comparison(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    node.ops[0] = _FLIPPED[type(node.ops[0])]()
    return True


def negate(node: ast.AST) -> bool:
    """A condition, or `and` for `or`."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return True
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return True
    return False


def change_number(node: ast.AST) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int) or isinstance(node.value, bool):
        return False
    node.value += 1 if node.lineno % 2 else -1
    return True


def remove_statement(node: ast.AST) -> bool:
    """One that stands beside others in the body of a function, a loop or a branch."""
    if not isinstance(node, ast.FunctionDef | ast.For | ast.If | ast.While | ast.With):
        return False
    places = [i for i, s in enumerate(node.body) if isinstance(s, ast.Expr | ast.Assign | ast.AugAssign | ast.Continue)]
    places = [i for i in places if not _is_docstring(node.body[i])]
    if not places or len(node.body) < 2:
        return False
    del node.body[places[node.lineno % len(places)]]
    return True


def swap_branches(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and node.orelse:
        node.body, node.orelse = node.orelse, node.body
        return True
    if isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body
        return True
    return False


KINDS: tuple[Callable[[ast.AST], bool], ...] = (
    change_comparison,
    negate,
    change_number,
    remove_statement,
    swap_branches,
)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def draw_mutants(count: int, seed: int, packages: tuple[str, ...]) -> Iterator[Mutant]:
    """Kinds in turn; modules by their length; places alike."""
    draw = random.Random(seed)
    modules = sorted(p for name in packages for p in (ROOT / "src" / "forkpoint" / name).rglob("*.py"))
    weights = [path.stat().st_size for path in modules]
    seen: set[tuple[Path, str]] = set()
    while len(seen) < count:
        kind = KINDS[len(seen) % len(KINDS)]
        path = draw.choices(modules, weights)[0]
        mutant = _mutate(path, kind, draw)
        if mutant is not None and (path, mutant.text) not in seen:
            seen.add((path, mutant.text))
            yield mutant


def _mutate(path: Path, kind: Callable[[ast.AST], bool], draw: random.Random) -> Mutant | None:
    tree = ast.parse(path.read_text())
    inside = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
    nodes = [node for function in inside for part in function.body for node in ast.walk(part)]
    for node in draw.sample(nodes, len(nodes)):
        if kind(node):
            text = ast.unparse(ast.fix_missing_locations(tree))
            return Mutant(path.relative_to(ROOT / "src"), kind.__name__, getattr(node, "lineno", 0), text)
    return None


def is_noticed(source: Path, tree: Path, tests: list[str]) -> bool:
    """Whether a test fails with this source, or does not end."""
    paths = os.pathsep.join(map(str, (source, tree / "tests", tree)))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=Path, default=ROOT, metavar="DIR", help="the checkout whose tests are run")
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("files", nargs="+", help="tests, as pytest takes them")
    options = parser.parse_args()
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__")))
        if is_noticed(source, options.tests, options.files):
            sys.exit("the tests fail without any mutant")
        for mutant in draw_mutants(options.count, options.seed, tuple(options.packages)):
            place = source / mutant.module
            place.write_text(mutant.text)
            found = is_noticed(source, options.tests, options.files)
            shutil.copy(ROOT / "src" / mutant.module, place)
            noticed += found
            print(f"{'noticed' if found else 'MISSED':8} {mutant.module}:{mutant.line} {mutant.what}", flush=True)
    print(f"{noticed} of {options.count} mutants noticed ({noticed / options.count:.0%})")


if __name__ == "__main__":
    main()
