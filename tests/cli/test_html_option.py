from pathlib import Path

import pytest

from cases import CASES
from forkpoint.cli import main
from looping import for_each

CASE = CASES / "0001"


def test_the_page_is_written_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"

    assert main(["diagnose", str(CASE / "capture"), "--html", str(page)]) == 1

    out, err = capsys.readouterr()
    assert "divergent-path" in out
    assert f"written: {page}" in err
    assert page.read_text().startswith("<!doctype html>")


def test_source_is_in_the_page_only_where_it_is_asked_for(tmp_path: Path) -> None:
    sizes: list[int] = []
    for options in ([], ["--embed-source"]):
        page = tmp_path / "report.html"
        main(["diagnose", str(CASE / "capture"), "--source", str(CASE / "source"), "--html", str(page), *options])
        sizes.append(page.stat().st_size)

    assert sizes[0] < sizes[1]


@for_each("options", [["--html", "x.html"], ["--source", str(CASE / "source")], []])
def test_source_cannot_be_embedded_without_source_or_page(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["diagnose", str(CASE / "capture"), "--embed-source", *options]) == 2

    assert "give both" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


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
