from pathlib import Path

import pytest

import forkpoint
from cases import CASES
from forkpoint.model.picture import Quote

CASE = CASES / "0001"


def quotes(source: Path, *, embed_source: bool = True) -> tuple[Quote, ...]:
    capture = forkpoint.read([str(CASE / "capture")])
    picture = forkpoint.diagnose(capture, [str(source)], picture=True, embed_source=embed_source).picture
    assert picture is not None
    return picture.quotes


def test_a_site_is_quoted_with_its_condition() -> None:
    site, *frames = quotes(CASE / "source")

    assert (site.file, site.marked, site.condition, site.site) == ("train.py", 15, 15, 0)
    assert site.lines[site.marked - site.first] == "    if is_main_process():"
    assert {frame.site for frame in frames} == {None}


def test_each_frame_of_the_users_code_is_quoted_and_shows_the_condition_where_it_is_near() -> None:
    frames = {Path(q.frame).name: q for q in quotes(CASE / "source") if q.frame}

    assert list(frames) == ["metrics.py:15", "train.py:16", "train.py:37", "train.py:42"]
    assert frames["train.py:16"].condition == 15
    assert frames["train.py:37"].condition is None
    assert "log_progress(step, metric)" in frames["train.py:37"].lines[37 - frames["train.py:37"].first]


def test_without_the_option_no_line_of_source_is_in_the_picture() -> None:
    assert quotes(CASE / "source", embed_source=False) == ()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "train.py").symlink_to(CASE / "source" / "train.py")
    (inside / "metrics.py").write_text((CASE / "source" / "metrics.py").read_text())

    assert {Path(quote.file).name for quote in quotes(inside)} == {"metrics.py"}


def test_a_line_past_the_end_of_the_file_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")

    assert quotes(tmp_path) == ()


@pytest.mark.parametrize("name", ["metrics.py", "train.py"])
def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path, name: str) -> None:
    for file in ("metrics.py", "train.py"):
        text = (CASE / "source" / file).read_bytes()
        (tmp_path / file).write_bytes(text + b"# \xff\n" if file == name else text)

    assert all(isinstance(line, str) for quote in quotes(tmp_path) for line in quote.lines)
