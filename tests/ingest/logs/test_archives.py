"""Packed logs: every format, hostile ones, and nothing written anywhere."""

import gzip
import io
import lzma
import shutil
import struct
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from forkpoint.evidence import zstd
from forkpoint.evidence.logs import ArchiveMember, UnpackBudget, open_members, read_log
from forkpoint.model.capture import Problem
from looping import for_each

LOG = b"[rank3]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:1] First PG on this rank to signal dumping.\n"


def members(data: bytes, name: str, budget: UnpackBudget | None = None) -> tuple[dict[str, bytes], list[Problem]]:
    contents: dict[str, bytes] = {}
    problems: list[Problem] = []
    for each in open_members(io.BytesIO(data), name, budget):
        if isinstance(each, ArchiveMember):
            contents[each.name] = each.stream.read()
        else:
            problems.append(each)
    return contents, problems


def tar(names: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(names: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in names.items():
            archive.writestr(name, data)
    return out.getvalue()


@for_each(
    ("name", "data", "inside"),
    [
        ("log.txt", LOG, "log.txt"),
        ("log.txt.gz", gzip.compress(LOG), "log.txt"),
        ("log.txt.xz", lzma.compress(LOG), "log.txt"),
        ("logs.zip", zipped({"a/log.txt": LOG}), "logs.zip/a/log.txt"),
        ("logs.tar", tar({"a/log.txt": LOG}), "logs.tar/a/log.txt"),
        ("logs.tar.gz", gzip.compress(tar({"a/log.txt": LOG})), "logs.tar/a/log.txt"),
        ("logs.tar.xz", lzma.compress(tar({"a/log.txt": LOG})), "logs.tar/a/log.txt"),
        ("logs.tar", tar({"a/log.txt.gz": gzip.compress(LOG)}), "logs.tar/a/log.txt"),
    ],
)
def test_what_is_packed_comes_out(name: str, data: bytes, inside: str) -> None:
    assert members(data, name) == ({inside: LOG}, [])


def test_a_member_is_read_as_a_log() -> None:
    (member,) = open_members(io.BytesIO(gzip.compress(LOG * 5000)), "log.gz")
    assert isinstance(member, ArchiveMember)
    reading = read_log(member.stream, member.name, None)

    assert (reading.lines, reading.speakers) == (5000, {3})


def test_names_lead_nowhere() -> None:
    contents, _ = members(tar({"../../etc/passwd": LOG, "/abs\\..\\x\x1b[2J": LOG}), "a.tar")

    assert list(contents) == ["a.tar/etc/passwd", "a.tar/abs/x"]


def test_links_and_devices_are_passed_over(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("x")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)

    assert members(out.getvalue(), "a.tar") == ({}, [])


@for_each("pack", [gzip.compress, lzma.compress, lambda data: zipped({"x": data})])
def test_a_bomb_ends_where_the_budget_does(pack) -> None:
    budget = UnpackBudget(total=1 << 22, ratio=10, ratio_from=1 << 20)
    contents, problems = members(pack(bytes(1 << 24)), "bomb", budget)

    assert sum(map(len, contents.values())) <= 1 << 21
    assert any("times" in problem.text for problem in problems)


def test_the_total_is_bounded_over_all_members() -> None:
    data = zipped({f"{n}": bytes([n]) * (1 << 20) for n in range(8)})
    contents, problems = members(data, "many.zip", UnpackBudget(total=3 << 20, ratio=10_000))

    assert sum(map(len, contents.values())) <= 3 << 20
    assert any("MiB" in problem.text for problem in problems)


def test_files_are_counted() -> None:
    contents, problems = members(zipped({str(n): LOG for n in range(20)}), "many.zip", UnpackBudget(members=5))

    assert len(contents) == 5
    assert "more than 5 files" in problems[0].text


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_cut_archive_gives_what_it_still_holds(pack) -> None:
    text = b"".join(b"%d line of a log\n" % (n * 7919) for n in range(40_000))
    data = pack(text)
    contents, problems = members(data[: len(data) // 2], "cut")

    assert text.startswith(contents["cut"])
    assert len(contents["cut"]) > 100_000
    assert len(problems) == 1


def test_garbage_after_the_magic_is_a_problem_not_a_crash() -> None:
    for head in (b"\x1f\x8b", b"\xfd7zXZ\x00", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"):
        _, problems = members(head + bytes(range(256)) * 4, "x")
        assert problems


def test_a_tar_header_cannot_ask_for_memory() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    _, problems = members(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "a.tar")

    assert "too large" in problems[0].text


def test_a_locked_zip_says_so() -> None:
    data = bytearray(zipped({"x": LOG}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(mark) + at
        struct.pack_into("<H", data, place, 1)
    _, problems = members(bytes(data), "a.zip")

    assert "password" in problems[0].text


def test_zstd_says_what_to_install_where_nothing_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "_module", lambda name: None)
    monkeypatch.setattr(zstd.shutil, "which", lambda name: None)
    _, problems = members(b"\x28\xb5\x2f\xfd" + bytes(20), "log.zst")

    assert "pip install zstandard" in problems[0].text


def test_zstd_is_read_by_a_module_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        ZstdError = KeyError

        @staticmethod
        def ZstdFile(stream, mode):  # noqa: N802
            return io.BytesIO(zlib.decompress(stream.read()[4:]))

    monkeypatch.setattr(zstd, "_module", lambda name: Fake if name == "compression.zstd" else None)

    assert members(b"\x28\xb5\x2f\xfd" + zlib.compress(LOG), "log.zst") == ({"log": LOG}, [])


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_zstd_is_read_by_the_program_where_no_module_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "_module", lambda name: None)
    log = LOG * 50_000
    packed = subprocess.run(["zstd", "-qc"], input=log, stdout=subprocess.PIPE, check=True).stdout

    assert members(packed, "log.zst") == ({"log": log}, [])
    contents, problems = members(packed[: len(packed) // 2], "log.zst")
    assert log.startswith(contents["log"])
    assert "damaged" in problems[0].text


def test_a_damaged_zstd_is_a_problem_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenError(Exception):
        pass

    class Fake:
        ZstdError = BrokenError

        def __init__(self, stream, mode) -> None:
            pass

        def read(self, size: int) -> bytes:
            raise BrokenError("checksum")

    Fake.ZstdFile = Fake

    monkeypatch.setattr(zstd, "_module", lambda name: Fake)
    _, problems = members(b"\x28\xb5\x2f\xfd", "log.zst")

    assert "damaged (checksum)" in problems[0].text
