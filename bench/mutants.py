"""How many small mistakes in the engine do the tests notice?

    python -m bench.mutants                                  # 300 mutants of diverge, judge, evidence and traces
    python -m bench.mutants --checkout ../before --count 120   # of another checkout: its source, its tests

A mutant changes one place of one function in a copy of src/. Only tests that run this function are asked, the quickest
first, and no more than take `--seconds` of CPU together. Which test runs which function is found once per checkout, by
running the tests with a trace of calls, and kept in `--cover FILE`. The same seed makes the same mutants of the same source.
The compiled decoder is hidden: the mutants are in Python.
"""

import argparse
import ast
import json
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("diverge", "judge", "evidence", "traces")
TESTS = ("tests/ingest", "tests/packed", "tests/property", "tests/test_*.py")
NOT_THE_ENGINE = ("bench", "docs", "habits", "manifests", "redact", "remedies")
HANGS = 20
"""A mutant that takes so many times the CPU that its tests take without it hangs, which is noticed."""

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
    module: str
    """Below src/forkpoint/."""
    function: str
    what: str
    line: int
    text: str
    """The module with the mistake in it."""

    @property
    def key(self) -> str:
        return f"{self.module}:{self.function}"


class Fate(StrEnum):
    NOTICED = "noticed"
    MISSED = "MISSED"
    NOT_RUN = "NOT RUN"
    """No test runs the function."""


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes: each function changes a node where it can, and says whether it could.


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


def draw_mutants(source: Path, count: int, seed: int, packages: Sequence[str]) -> Iterator[Mutant]:
    """Kinds in turn; modules by their length; places alike."""
    draw = random.Random(seed)
    modules = sorted(p for name in packages for p in (source / name).rglob("*.py"))
    weights = [path.stat().st_size for path in modules]
    seen: set[tuple[Path, str]] = set()
    while len(seen) < count:
        kind = KINDS[len(seen) % len(KINDS)]
        path = draw.choices(modules, weights)[0]
        mutant = _mutate(source, path, kind, draw)
        if mutant is not None and (path, mutant.text) not in seen:
            seen.add((path, mutant.text))
            yield mutant


def _mutate(source: Path, path: Path, kind: Callable[[ast.AST], bool], draw: random.Random) -> Mutant | None:
    tree = ast.parse(path.read_text())
    nodes = [(name, node) for name, part in _statements(tree, "") for node in ast.walk(part)]
    for name, node in draw.sample(nodes, len(nodes)):
        if kind(node):
            text = ast.unparse(ast.fix_missing_locations(tree))
            return Mutant(str(path.relative_to(source)), name, kind.__name__, getattr(node, "lineno", 0), text)
    return None


def _statements(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Statements inside functions of a module and of its classes, with the name of the function."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            yield from _statements(inner, f"{prefix}{inner.name}.")
        elif isinstance(inner, ast.FunctionDef):
            yield from ((f"{prefix}{inner.name}", part) for part in inner.body)


# ---------------------------------------------------------------------------------------------------------------------
# Which tests run which function, and how long each takes.


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    said: str


@dataclass(frozen=True, slots=True)
class Cover:
    seconds: dict[str, float]
    tests: dict[str, frozenset[str]]
    """By function."""

    def choose(self, function: str, seconds: float) -> list[str]:
        """The quickest first, as many as fit; one in any case."""
        chosen: list[str] = []
        for test in sorted(self.tests.get(function, ()), key=lambda test: self.seconds[test]):
            seconds -= self.seconds[test]
            if chosen and seconds < 0:
                break
            chosen.append(test)
        return chosen


def find_cover(checkout: Path, file: Path, patterns: Sequence[str]) -> Cover:
    """Run the tests of the engine once, unless the file already says which functions they run."""
    if not file.exists():
        _trace(checkout, file, patterns)
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for line in map(json.loads, file.read_text().splitlines()):
        seconds[line["test"]] += line["seconds"]
        for function in line["functions"]:
            tests[function].add(line["test"])
    return Cover(dict(seconds), {function: frozenset(names) for function, names in tests.items()})


def _trace(checkout: Path, file: Path, patterns: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = checkout / "src"
        found = Path(folder) / "cover.jsonl"
        told = {"MUTANT_COVER": str(found), "MUTANT_SOURCE": str(source / "forkpoint")}
        done = _pytest(checkout, source, Path(folder), ["-p", "mutant_cover", *_engine_tests(checkout, patterns)], told)
        if done.code:
            sys.exit(f"the tests fail without any mutant:\n{done.said[-3000:]}")
        shutil.copy(found, file)


def _engine_tests(checkout: Path, patterns: Sequence[str]) -> list[str]:
    found = sorted(path for pattern in patterns for path in checkout.glob(pattern))
    return [str(path.relative_to(checkout)) for path in found if not any(word in path.name for word in NOT_THE_ENGINE)]


def _pytest(
    checkout: Path, source: Path, scratch: Path, args: Sequence[str], more: dict[str, str], cpu_s: int | None = None
) -> Ran:
    """`scratch` gets a stand-in for the compiled decoder that cannot be imported."""
    (scratch / "forkpoint_native.py").write_text('raise ImportError("the mutants are in Python")\n')
    paths = os.pathsep.join(map(str, (scratch, source, HERE, checkout / "tests", checkout)))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *args],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if cpu_s is not None:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_s, cpu_s))
    said, _ = process.communicate()
    return Ran(process.returncode, said)


# ---------------------------------------------------------------------------------------------------------------------


class Runner:
    """Runs tests against mutants, several at once, each in a copy of src/ of its own."""

    def __init__(self, checkout: Path, cover: Cover, seconds: float, folder: Path, processes: int) -> None:
        self._checkout, self._cover, self._seconds = checkout, cover, seconds
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(processes):
            scratch = folder / str(number)
            shutil.copytree(checkout / "src", scratch / "src", ignore=shutil.ignore_patterns("__pycache__"))
            self._free.put(scratch)

    def decide(self, mutant: Mutant) -> Fate:
        tests = self._cover.choose(mutant.key, self._seconds)
        if not tests:
            return Fate.NOT_RUN
        scratch = self._free.get()
        place = scratch / "src" / "forkpoint" / mutant.module
        original = place.read_text()
        place.write_text(mutant.text)
        try:
            cpu_s = int(HANGS * sum(self._cover.seconds[test] for test in tests)) + 60
            done = _pytest(self._checkout, scratch / "src", scratch, tests, {}, cpu_s)
        finally:
            place.write_text(original)
            self._free.put(scratch)
        if done.code in {4, 5}:  # wrong usage, or nothing to run: that is no answer of the tests
            raise RuntimeError(done.said[-2000:])
        return Fate.NOTICED if done.code else Fate.MISSED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkout", type=Path, default=HERE.parent, metavar="DIR", help="whose source and tests")
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATTERN", help="files and folders of tests")
    parser.add_argument("--seconds", type=float, default=15.0, help="CPU of the tests that are asked of one mutant")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cover", type=Path, metavar="FILE", help="keep here, and take from here, what tests run")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    with tempfile.TemporaryDirectory() as name:
        cover = find_cover(checkout, options.cover or Path(name) / "cover.jsonl", options.tests)
        runner = Runner(checkout, cover, options.seconds, Path(name), options.processes)
        mutants = list(draw_mutants(checkout / "src" / "forkpoint", options.count, options.seed, options.packages))
        fates: list[Fate] = []
        with ThreadPoolExecutor(options.processes) as pool:
            for mutant, fate in zip(mutants, pool.map(runner.decide, mutants), strict=True):
                fates.append(fate)
                print(f"{fate:8} {mutant.module}:{mutant.line} {mutant.what}", flush=True)
    noticed = fates.count(Fate.NOTICED)
    print(
        f"{noticed} of {len(fates)} mutants noticed ({noticed / len(fates):.0%}); no test runs {fates.count(Fate.NOT_RUN)}"
    )


if __name__ == "__main__":
    main()
