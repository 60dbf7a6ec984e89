"""A stranger's folder may hold links: those that lead out are listed, not read, whenever they were made."""

import tarfile
from pathlib import Path

import pytest

from collect.planted import WATCHDOG
from forkpoint.agent.tools import logs
from forkpoint.brief.case import open_case
from forkpoint.evidence import WAY_OUT, read
from forkpoint.evidence.files import find_files, open_file
from forkpoint.evidence.links import LeadsOut, open_beneath
from forkpoint.gather.bundle import BundleOrder, make_bundle

SECRET = "the plans of another folder"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "evidence"
    inside.mkdir()
    (inside / "log_rank_0.txt").write_text(WATCHDOG.format(rank=0))
    (inside / "again_rank_0.log").symlink_to("log_rank_0.txt")
    (tmp_path / "elsewhere.log").write_text(WATCHDOG.format(rank=1) + SECRET)
    (inside / "log_rank_1.txt").symlink_to(tmp_path / "elsewhere.log")
    return inside


def test_a_link_that_leads_out_is_listed_and_followed_only_on_demand(folder: Path) -> None:
    capture = read([str(folder)])
    followed = read([str(folder)], follow_links=True)

    assert [problem.text for problem in capture.problems] == [WAY_OUT]
    assert {event.rank for event in capture.events} == {0}
    assert followed.problems == ()
    assert {event.rank for event in followed.events} == {0, 1}


def test_a_path_that_a_person_names_is_read_though_it_is_a_link(folder: Path) -> None:
    assert {event.rank for event in read([str(folder / "log_rank_1.txt")]).events} == {1}
    assert len(find_files([str(folder)])) == 1  # a link inside is the same file


def test_a_bundle_lists_the_link_and_does_not_pack_what_it_leads_to(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.tar.gz"

    bundle = make_bundle(BundleOrder((str(folder),), str(out), str(tmp_path / "m.json")))

    assert [problem.text for problem in bundle.left_out] == [WAY_OUT]
    with tarfile.open(out) as archive:
        held = [stream.read() for info in archive.getmembers() if (stream := archive.extractfile(info))]
    assert not [data for data in held if SECRET.encode() in data]


def test_a_file_or_a_folder_swapped_for_a_link_is_not_opened(folder: Path, tmp_path: Path) -> None:
    deep = folder / "deep"
    deep.mkdir()
    (deep / "x.log").write_text("fine")
    with open_file(str(deep / "x.log"), (str(folder),)) as stream:
        assert stream.read() == b"fine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.log").write_text(SECRET)
    (deep / "x.log").unlink()
    deep.rmdir()
    deep.symlink_to(other)

    with pytest.raises(LeadsOut):
        open_beneath(str(deep / "x.log"), str(folder))


def test_a_log_swapped_for_a_link_after_the_case_was_opened_is_not_read(folder: Path, tmp_path: Path) -> None:
    log = folder / "log_rank_0.txt"
    case = open_case([str(folder)])
    assert [stream.read() for stream in logs._opened(str(log), case.paths)]
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere.log")

    with pytest.raises(OSError, match="points outside"):
        list(logs._opened(str(log), case.paths))
