"""Lines of logs, read again: only those of the case, whatever they are packed in, and never without end."""

import gzip
import io
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.claim_cases import all_recorded, recorded
from cases import CASES
from forkpoint.agent.tools import logs
from forkpoint.agent.tools.logs import LONGEST, find_file, last_lines, line_at, read_lines, text_files
from forkpoint.brief.case import Case, open_case
from forkpoint.errors import UnreadableInput
from forkpoint.evidence.logs.lines import LONGEST as LONGEST_CHUNK
from forkpoint.model.log import LogKind
from looping import for_each, one_in

LOG = (CASES / "0001" / "capture" / "log_rank_1.txt").read_bytes()
TIMEOUT = 13
"""The line on which the watchdog speaks."""


def opened(folder: Path, name: str, data: bytes) -> Case:
    (folder / name).write_bytes(data)
    return open_case([str(folder)])


@one_in(5)
def test_every_timeout_that_the_verdict_could_cite_stands_on_the_line_it_is_told_of(share: int) -> None:
    seen = 0
    for number, case in all_recorded(share):
        for event in case.incident.capture.events:
            if event.kind is LogKind.WATCHDOG_TIMEOUT:
                seen += 1
                line = line_at(case, event.file, event.line)
                assert line is not None, (number, event.file, event.line)
                assert "Watchdog caught collective operation timeout" in line

    assert seen > 100 // share


@for_each("number", [0, -1, 10**30])
def test_a_line_that_is_not_there_is_none(number: int) -> None:
    assert line_at(recorded("0001"), "log_rank_1.txt", number) is None


def test_the_last_line_is_there_and_the_one_after_it_is_not(tmp_path: Path) -> None:
    case = opened(tmp_path, "log_rank_1.txt", LOG.rstrip(b"\n"))
    count = len(LOG.rstrip(b"\n").split(b"\n"))

    assert line_at(case, "log_rank_1.txt", count) == case.clean(LOG.rstrip(b"\n").split(b"\n")[-1].decode())
    assert line_at(case, "log_rank_1.txt", count + 1) is None


def _tarred(data: bytes, mode: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        entry = tarfile.TarInfo("logs/log_rank_1.txt")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("logs/log_rank_1.txt", data)
    return packed.getvalue()


@for_each(
    ("name", "pack"),
    [
        ("log_rank_1.txt", bytes),
        ("log_rank_1.txt.gz", gzip.compress),
        ("log_rank_1.txt.xz", lzma.compress),
        ("job.tar", lambda data: _tarred(data, "w")),
        ("job.tar.gz", lambda data: _tarred(data, "w:gz")),
        ("job.tgz", lambda data: _tarred(data, "w:gz")),
        ("job.zip", _zipped),
    ],
)
def test_a_line_is_the_same_however_its_log_is_packed(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    case = opened(tmp_path, name, pack(LOG))

    assert line_at(case, "log_rank_1.txt", TIMEOUT) == case.clean(LOG.split(b"\n")[TIMEOUT - 1].decode())


def test_a_packed_log_is_found_from_a_path_that_begins_with_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log_rank_1.txt.gz").write_bytes(gzip.compress(LOG))
    monkeypatch.chdir(tmp_path)

    assert line_at(open_case(["."]), "log_rank_1.txt", TIMEOUT) is not None


def test_what_came_through_a_pipe_cannot_be_read_again_and_nobody_waits_for_it(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, LOG)
    os.close(writing)
    try:
        case = open_case([f"/dev/fd/{reading}"])
        (file,) = text_files(case)

        assert line_at(case, file, TIMEOUT) is None
        with pytest.raises(UnreadableInput, match="pipe"):
            next(read_lines(case, file))
    finally:
        os.close(reading)


def test_a_log_that_is_gone_cannot_be_read_again(tmp_path: Path) -> None:
    case = opened(tmp_path, "log_rank_1.txt", LOG)
    (tmp_path / "log_rank_1.txt").unlink()

    assert line_at(case, "log_rank_1.txt", TIMEOUT) is None
    with pytest.raises(UnreadableInput, match="gone"):
        next(read_lines(case, str(tmp_path / "log_rank_1.txt")))


@for_each("name", ["/etc/passwd", "../../etc/passwd", "case.toml", "", "/", "x\0y", "nccl_trace_rank_0"])
def test_only_files_of_text_that_the_case_names_are_opened(name: str) -> None:
    assert find_file(recorded("0001"), name) is None
    assert line_at(recorded("0001"), name, 1) is None


def test_a_member_named_like_a_file_behind_a_link_does_not_lead_there(tmp_path: Path) -> None:
    """Who hands over a folder could put a link beside an archive whose member has the name of the file behind it."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "log_rank_1.txt").write_text("not of the case\n" * TIMEOUT)
    (folder / "job").symlink_to(outside)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("log_rank_1.txt")
        entry.size = len(LOG)
        archive.addfile(entry, io.BytesIO(LOG))
    (folder / "job.tgz").write_bytes(packed.getvalue())
    case = open_case([str(folder)])

    assert [*text_files(case)] == [str(folder / "job" / "log_rank_1.txt")]
    line = line_at(case, "log_rank_1.txt", TIMEOUT)
    assert line is not None
    assert "Watchdog" in line


def test_a_file_in_a_hidden_folder_is_not_read_for_a_member_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "job" / ".kept").mkdir(parents=True)
    (tmp_path / "job" / ".kept" / "log_rank_1.txt").write_text("not of the case\n" * TIMEOUT)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo(".kept/log_rank_1.txt")
        entry.size = len(LOG)
        archive.addfile(entry, io.BytesIO(LOG))
    (tmp_path / "job.tgz").write_bytes(packed.getvalue())

    line = line_at(open_case([str(tmp_path)]), "log_rank_1.txt", TIMEOUT)

    assert line is not None
    assert "Watchdog" in line


def test_two_files_of_one_name_are_told_apart_by_more_of_their_path(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        (tmp_path / attempt / "log_rank_1.txt").write_bytes(LOG)
    case = open_case([str(tmp_path)])

    assert find_file(case, "log_rank_1.txt") is None
    assert find_file(case, "second/log_rank_1.txt") == str(tmp_path / "second" / "log_rank_1.txt")


def test_a_file_is_found_by_the_name_under_which_it_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "ada"
    folder.mkdir(parents=True)
    (folder / "log_rank_1.txt").write_bytes(LOG)
    case = open_case([str(tmp_path)])
    (file,) = text_files(case)

    assert find_file(case, case.clean(file)) == file


def test_a_huge_line_is_cut_where_a_word_ends_and_the_lines_after_it_keep_their_numbers(tmp_path: Path) -> None:
    token = b"hf_" + b"a" * 40
    huge = b"word " * (LONGEST // 5 - 2) + token + b" x" * LONGEST_CHUNK
    case = opened(tmp_path, "log_rank_1.txt", b"\n".join([LOG.split(b"\n")[0], huge, *LOG.split(b"\n")[2:]]))

    cut = line_at(case, "log_rank_1.txt", 2)
    assert cut is not None
    assert len(cut) <= LONGEST
    assert "hf_" not in cut
    file = find_file(case, "log_rank_1.txt")
    assert file is not None
    numbers = [line.number for line in read_lines(case, file)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert line_at(case, "log_rank_1.txt", TIMEOUT) == case.clean(LOG.split(b"\n")[TIMEOUT - 1].decode())


def test_a_line_cannot_act_on_a_terminal_and_shows_no_secret(tmp_path: Path) -> None:
    hostile = b"\x1b[2J\xe2\x80\xae hf_" + b"A1b2" * 10 + b" \xff\x01 end"
    case = opened(tmp_path, "log_rank_1.txt", LOG + hostile + b"\n")

    line = line_at(case, "log_rank_1.txt", LOG.count(b"\n") + 1)

    assert line is not None
    assert line.isprintable()
    assert "A1b2A1b2" not in line
    assert line.endswith("end")


def test_reading_on_gives_every_line_once_and_from_where_it_was_asked() -> None:
    case = recorded("0001")
    file = find_file(case, "log_rank_1.txt")
    assert file is not None
    lines = [line.decode() for line in LOG.rstrip(b"\n").split(b"\n")]

    assert [line.text for line in read_lines(case, file)] == lines
    assert [line.number for line in read_lines(case, file, first=10)] == [*range(10, len(lines) + 1)]
    assert [line.number for line in read_lines(case, file, containing=re.compile(b"Watchdog caught"))] == [TIMEOUT]
    assert [line.text for line in last_lines(case, file)] == lines


def test_a_log_larger_than_may_be_read_is_read_so_far_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = opened(tmp_path, "log_rank_1.txt", LOG + b"[rank1]: step\n" * 200_000)
    monkeypatch.setattr(logs, "READ_AT_MOST", 1 << 20)

    assert line_at(case, "log_rank_1.txt", TIMEOUT) is not None
    assert line_at(case, "log_rank_1.txt", 200_000) is None
    with pytest.raises(UnreadableInput, match="only its first 1 MiB"):
        last_lines(case, str(tmp_path / "log_rank_1.txt"))


def test_the_end_of_a_long_log_has_its_true_numbers(tmp_path: Path) -> None:
    filler = b"[rank1]: step\n" * 200_000
    case = opened(tmp_path, "log_rank_1.txt", LOG + filler)
    file = find_file(case, "log_rank_1.txt")
    assert file is not None

    end = last_lines(case, file)

    assert end[-1].number == LOG.count(b"\n") + 200_000
    assert end[0].number > 1
    assert [line.number for line in end] == [*range(end[0].number, end[-1].number + 1)]
