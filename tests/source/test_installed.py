"""Installed packages as source: found by name, never imported."""

import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from forkpoint.cli.options import source_path
from forkpoint.source.installed import folder_of


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "explosive" / "inner").mkdir(parents=True)
    (tmp_path / "explosive" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "explosive" / "inner" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "lonely.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_is_found_without_running_any_of_it(packages: Path) -> None:
    assert source_path("pkg:explosive") == str(packages / "explosive")
    assert folder_of("explosive.inner") == str(packages / "explosive" / "inner")
    assert folder_of("lonely") == str(packages / "lonely.py")
    assert not {"explosive", "explosive.inner", "lonely"} & sys.modules.keys()


def test_a_name_that_is_not_installed_says_what_to_do() -> None:
    for name in ("pkg:no_such_package_here", "pkg:", "pkg:../etc", "pkg:explosive.nothing"):
        with pytest.raises(ArgumentTypeError, match="give its folder instead"):
            source_path(name)
