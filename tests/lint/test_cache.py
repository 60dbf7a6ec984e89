"""A second run over unchanged input."""

from dataclasses import replace
from pathlib import Path

import pytest

from forkpoint.lint import LintReport, Options, cache
from forkpoint.lint import run as run_module
from forkpoint.lint.rule import Violation
from forkpoint.lint.run import lint_paths

pytestmark = pytest.mark.usefixtures("sample_rules")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("bad = 1\n")
    return tmp_path / "pkg"


def run(folder: Path, options: Options | None = None, *, use_cache: bool = True) -> LintReport:
    return lint_paths([str(folder)], options or Options(), lambda *_: None, use_cache=use_cache)


def entries(home: Path) -> list[Path]:
    return sorted(home.rglob("*.json"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one whenever source is read."""
    done: list[str] = []
    real = run_module.read_program
    monkeypatch.setattr(run_module, "read_program", lambda *args: done.append("read") or real(*args))
    return done


def test_unchanged_input_is_not_read_again(folder: Path, reads: list[str]) -> None:
    first, second = run(folder), run(folder)

    assert first == second
    assert len(first.violations) == 1
    assert reads == ["read"]


@pytest.mark.parametrize("change", ["content", "new file", "removed file", "options", "package", "version"])
def test_whatever_could_change_the_answer_has_it_worked_out_again(
    folder: Path, reads: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "other.py").write_text("")
    options = Options()
    run(folder, options)

    if change == "content":
        (folder / "train.py").write_text("bad = 2\n")
    elif change == "new file":
        (folder / "new.py").write_text("")
    elif change == "removed file":
        (folder / "other.py").unlink()
    elif change == "options":
        options = replace(options, advisory=True)
    elif change == "package":
        (folder.parent / "__init__.py").write_text("")
    else:
        monkeypatch.setattr("forkpoint.__version__", "99")
    run(folder, options)

    assert reads == ["read", "read"]


def test_a_touched_file_with_the_same_content_is_the_same_input(folder: Path, reads: list[str]) -> None:
    run(folder)
    (folder / "train.py").touch()
    run(folder)

    assert reads == ["read"]


@pytest.mark.parametrize("damage", ["", "nonsense", "cut", "flipped", "\udcff"])
def test_a_damaged_cache_is_ignored(folder: Path, reads: list[str], own_cache: Path, damage: str) -> None:
    first = run(folder)
    (entry,) = entries(own_cache)
    text = entry.read_text()
    damaged = {"cut": text[:-20], "flipped": text.replace('"line": 1', '"line": 2')}.get(damage, damage)
    entry.write_bytes(damaged.encode("utf-8", "surrogateescape"))

    assert run(folder) == first
    assert reads == ["read", "read"]


def test_without_a_place_to_write_there_is_no_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert run(folder) == run(folder)


def test_no_cache_neither_uses_nor_keeps(folder: Path, reads: list[str], own_cache: Path) -> None:
    run(folder, use_cache=False)
    assert entries(own_cache) == []

    run(folder)
    run(folder, use_cache=False)
    assert reads == ["read", "read", "read"]


def test_a_file_that_changes_meanwhile_is_not_remembered(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run_module.read_program
    monkeypatch.setattr(
        run_module, "read_program", lambda *args: (folder / "train.py").write_text("good = 1\n") and real(*args)
    )
    run(folder)

    assert entries(own_cache) == []


def test_the_cache_is_bounded(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 3)
    monkeypatch.setattr(cache, "MAX_ENTRY_BYTES", 5000)
    for number in range(6):
        cache.store(str(number), LintReport((), (), number, 0))
    cache.store("large", LintReport((Violation("bad-word", "a.py", 1, 1, 1, "f", "m" * 5000),), (), 1, 1))

    assert len(entries(own_cache)) == 3
    assert cache.load("large") is None
