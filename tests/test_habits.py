"""Ratchets: what a reader relies on and no linter checks."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from forkpoint.judge.detectors import DETECTORS, WITHOUT_CAUSE
from looping import for_each

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "forkpoint"
MODULES = sorted([*SRC.rglob("*.py"), *(ROOT / "bench").rglob("*.py"), *(ROOT / "docs").rglob("*.py")])
SOURCES = sorted(SRC.rglob("*.py"))
INSIDE_TRAINING = (
    *(
        f"src/forkpoint/{name}/"
        for name in ("consensus", "controller", "demo_source", "guard", "lab/jobs", "rehearse/inside", "replicas")
    ),
    "src/forkpoint/torchrun.py",
)
"""What runs inside training processes, or shows such a program, imports torch, and nothing else does."""
HEADINGS = ("What it looks like", "Why it happens", "What rules it out", "Fix")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def functions(path: Path) -> Iterator[Function]:
    yield from (node for node in nodes(path) if isinstance(node, Function))


def length(function: Function) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def body_of(function: Function) -> str:
    """What the function does: without its name and docstring."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return "\n".join(ast.unparse(statement) for statement in body)


def test_no_module_is_longer_than_a_page_of_420_lines() -> None:
    assert [named(path) for path in MODULES if len(path.read_text().splitlines()) > 420] == []


def test_no_function_is_longer_than_60_lines() -> None:
    assert [f"{named(path)} {f.name}" for path in MODULES for f in functions(path) if length(f) > 60] == []


def test_no_function_is_written_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for function in functions(path):
            if length(function) > 4 and (body := body_of(function)).count("\n") >= 4:
                places[body].append(f"{named(path)} {function.name}")

    assert [twins for twins in places.values() if len(twins) > 1] == []


@for_each(
    "unsafe",
    [
        r"^\s*(import|from) +_?pickle",
        r"(?<![\w.])(eval|exec)\(",
        r"yaml\.(unsafe_)?load\(",
        r"shell=True",
        r"os\.system\(",
    ],
)
def test_nothing_on_the_diagnosis_path_can_run_code_from_input(unsafe: str) -> None:
    assert [named(path) for path in SOURCES if re.search(unsafe, path.read_text(), re.MULTILINE)] == []


def test_nothing_on_the_diagnosis_path_imports_torch() -> None:
    """Read as code: the examples of lint rules import it in their text."""
    found = [
        named(path)
        for path in SOURCES
        if not named(path).startswith(INSIDE_TRAINING)
        for node in nodes(path)
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "torch" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch")
    ]

    assert found == []


@for_each("find", DETECTORS, ids=lambda find: find.__module__.rpartition(".")[2])
def test_every_detector_documents_itself_under_the_same_headings(find: object) -> None:
    lines = (sys.modules[find.__module__].__doc__ or "").splitlines()

    assert [line for line in lines if line in HEADINGS] == list(HEADINGS)
    assert lines[0].endswith(".")


def test_the_detectors_kept_apart_are_the_detectors_there_are() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = config["tool"]["importlinter"]["contracts"]
    kept_apart = next(contract["modules"] for contract in contracts if contract["id"] == "detectors")

    assert sorted(kept_apart) == sorted(find.__module__ for find in (*DETECTORS, *WITHOUT_CAUSE))


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    # Spelled in pieces, so that this file does not find itself.
    places = "|".join(["/" + "work/", "/" + "root/", "/" + "opt/pypi", "/" + "opt/wheels", "bash" + "_jobs"])
    private = re.compile(rb"(?<![\w.~-])(" + places.encode() + rb")")

    assert [named(path) for path in tracked_files() if private.search(path.read_bytes())] == []


def test_every_ignored_lint_rule_has_a_reason() -> None:
    bare = re.compile(
        r"# (noqa: [A-Z0-9, ]+|(type|pyrefly): ignore\[[^]]*\])\s*$|# (noqa|type: ignore|pyrefly: ignore)\s*$"
    )

    assert [
        f"{named(path)}:{n}"
        for path in SOURCES
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ] == []
