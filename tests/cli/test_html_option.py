from pathlib import Path

import pytest

from cases import CASES
from forkpoint.cli import main

CASE = CASES / "0001"


def test_the_page_is_written_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"

    assert main(["diagnose", str(CASE / "capture"), "--html", str(page)]) == 1

    out, err = capsys.readouterr()
    assert "divergent-path" in out
    assert f"written: {page}" in err
    assert page.read_text().startswith("<!doctype html>")


def test_source_is_in_the_page_unless_it_may_not_leave(tmp_path: Path) -> None:
    sizes: list[int] = []
    for options in (["--no-embed-source"], []):
        page = tmp_path / "report.html"
        main(["diagnose", str(CASE / "capture"), "--source", str(CASE / "source"), "--html", str(page), *options])
        sizes.append(page.stat().st_size)

    assert sizes[0] < sizes[1]


def test_a_source_cannot_be_given_and_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(CASE / "capture"), "--source", str(CASE / "source"), "--no-source"]) == 2

    assert "give one of them" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(CASE / "capture"), "--html", str(tmp_path / "no" / "x.html")]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "create it first" in err


def test_the_demo_ends_with_the_path_of_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "demo.html"

    assert main(["demo", "--html", str(page)]) == 0

    assert capsys.readouterr().err.endswith(f"The same report for a browser: {page}\n")
    assert page.stat().st_size > 1000
