"""The obvious first calls from Python work, and the page and the notebook of examples run as they stand."""

import ast
import copy
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import forkpoint
from forkpoint.errors import ForkpointError

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "src" / "forkpoint" / "demo"


@pytest.fixture(scope="module")
def verdict() -> forkpoint.Verdict:
    return forkpoint.diagnose(str(DEMO))


def test_one_path_many_paths_and_a_capture_give_the_same_verdict(verdict: forkpoint.Verdict) -> None:
    assert verdict.suspects == (0,)
    assert (
        forkpoint.diagnose(DEMO)
        == forkpoint.diagnose([str(DEMO)])
        == forkpoint.diagnose(forkpoint.read(DEMO))
        == verdict
    )


def test_a_verdict_renders_itself(verdict: forkpoint.Verdict) -> None:
    assert json.loads(verdict.to_json())["suspects"] == [0]
    assert verdict.to_html().startswith("<!doctype html>")
    assert verdict.to_markdown().startswith("# forkpoint: divergent-path")
    assert verdict.explain().startswith("divergent-path: ")
    assert verdict.headline in verdict._repr_html_()
    assert str(verdict) == verdict.headline


def test_confidence_is_shown_only_where_something_is_claimed(verdict: forkpoint.Verdict, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1\n")

    assert "confidence 0." in verdict._repr_html_()
    assert "confidence" not in forkpoint.diagnose(tmp_path)._repr_html_()


def test_what_does_not_exist_is_said_as_such() -> None:
    with pytest.raises(ForkpointError, match="no/such/folder: no such file or directory"):
        forkpoint.diagnose("no/such/folder")
    with pytest.raises(ForkpointError, match="no path was given"):
        forkpoint.diagnose([])
    with pytest.raises(ForkpointError, match="source no/such/folder"):
        forkpoint.diagnose(DEMO, source="no/such/folder")
    with Path(__file__).open() as file, pytest.raises(ForkpointError, match="an open file was given; give its path"):
        forkpoint.diagnose(file)


def test_the_package_lists_what_it_offers() -> None:
    assert {"read", "diagnose", "Verdict", "Capture", "ForkpointError", "__version__"} <= set(dir(forkpoint))


def run_cell(code: str, names: dict[str, Any]) -> object:
    """As a notebook does: the value of a last line that is an expression comes back."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DEMO, tmp_path / "incident")
    (tmp_path / "incident" / "source").mkdir(exist_ok=True)


@pytest.mark.usefixtures("incident")
def test_every_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        run_cell(block, names)

    assert len(blocks) == 6
    assert "divergent-path (0,) fix-code" in capsys.readouterr().out
    assert Path("report.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("incident")
def test_the_notebook_runs_and_its_verdicts_are_drawn() -> None:
    notebook = json.loads((ROOT / "examples" / "forkpoint.ipynb").read_text())
    names: dict[str, Any] = {}
    values = [run_cell("".join(c["source"]), names) for c in notebook["cells"] if c["cell_type"] == "code"]

    assert len(values) >= 5
    drawn = [value._repr_html_() for value in values if isinstance(value, forkpoint.Verdict)]
    assert drawn
    assert all(text.startswith("<div>") for text in drawn)


def test_wrong_first_calls_say_what_to_use(verdict: forkpoint.Verdict) -> None:
    for owner, name, instead in (
        (forkpoint, "analyze", "did you mean forkpoint.diagnose?"),
        (forkpoint, "attach", "`forkpoint attach` is a command of the shell"),
        (forkpoint, "diagnos", "did you mean forkpoint.diagnose?"),
        (forkpoint, "explain", "a verdict has explain()"),
        (verdict, "to_text", "print(verdict)"),
        (verdict, "to_dict", "json.loads(verdict.to_json())"),
        (verdict, "save", "write_text(verdict.to_html())"),
    ):
        with pytest.raises(AttributeError, match=re.escape(instead)):
            getattr(owner, name)
    assert copy.copy(verdict) == pickle.loads(pickle.dumps(verdict)) == verdict
