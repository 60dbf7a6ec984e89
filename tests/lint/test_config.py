"""`[tool.forkpoint.lint]` in pyproject.toml."""

from pathlib import Path

import pytest

from forkpoint.errors import UsageError
from forkpoint.lint.catalogue import Options, PathIgnore, read_config
from looping import for_each

pytestmark = pytest.mark.usefixtures("sample_rules")


def write(folder: Path, table: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.forkpoint.lint]\n{table}")
    return folder


def test_everything_can_be_configured(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        select = ["bad-word"]
        ignore = ["doubtful-word"]
        advisory = true
        exclude = ["third_party"]
        per-path-ignores = { "tests/*" = ["bad-word"] }
        """,
    )

    assert read_config(str(tmp_path)) == Options(
        select=("bad-word",),
        ignore=("doubtful-word",),
        advisory=True,
        exclude=("third_party",),
        path_ignores=(PathIgnore("tests/*", ("bad-word",)),),
        root=str(tmp_path),
    )


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    write(tmp_path, "advisory = true\n")
    inner = tmp_path / "pkg" / "sub"
    inner.mkdir(parents=True)
    (tmp_path / "pkg" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (inner / "train.py").write_text("")

    assert read_config(str(inner / "train.py")).advisory
    assert read_config(str(inner)).root == str(tmp_path)


def test_without_a_table_the_default_holds(tmp_path: Path) -> None:
    assert read_config(str(tmp_path)) == Options()


@for_each(
    ("table", "says"),
    [
        ("selct = []", "has no key 'selct'; did you mean 'select'?"),
        ("per_path_ignores = {}", "has no key 'per_path_ignores'; did you mean 'per-path-ignores'?"),
        ("zzzz = 1", "has no key 'zzzz'"),
        ("select = ['bad-wrd']", "select: there is no rule 'bad-wrd'; did you mean 'bad-word'?"),
        ("ignore = 'bad-word'", "ignore must be a list of strings"),
        ("exclude = [1]", "exclude must be a list of strings"),
        ("advisory = 'yes'", "advisory must be true or false"),
        ("per-path-ignores = []", "per-path-ignores must be a table"),
        ("per-path-ignores = {x = ['nothing-like-it']}", "x: there is no rule"),
        ("select = [", "cannot be read as TOML"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_that_names_the_file(tmp_path: Path, table: str, says: str) -> None:
    write(tmp_path, table)

    with pytest.raises(UsageError) as error:
        read_config(str(tmp_path))

    assert str(tmp_path / "pyproject.toml") in str(error.value)
    assert says in str(error.value)


def test_what_is_called_lint_must_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.forkpoint]\nlint = true\n")

    with pytest.raises(UsageError, match="must be a table"):
        read_config(str(tmp_path))
