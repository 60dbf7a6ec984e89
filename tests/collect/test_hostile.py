"""Archives that would lead out of their place, or fill the disk: refused or left out, and the rest goes on."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from collect.planted import WATCHDOG
from forkpoint.evidence import read
from forkpoint.gather.bundle import BundleOrder, make_bundle
from forkpoint.gather.collect import Wanted, collect
from forkpoint.pipeline import diagnose


def evil_tar() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, kind, link in [
            ("link.log", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.log", tarfile.LNKTYPE, "/etc/passwd"),
            ("device.log", tarfile.CHRTYPE, ""),
            ("pipe.log", tarfile.FIFOTYPE, ""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
        for name in ("../../escaped_rank_0.log", "/tmp/absolute_rank_0.log"):
            info = tarfile.TarInfo(name)
            said = WATCHDOG.format(rank=0).encode()
            info.size = len(said)
            archive.addfile(info, io.BytesIO(said))
    return data.getvalue()


def gzip_bomb() -> bytes:
    """One packed piece again and again: a thousand bytes out for each byte in."""
    return gzip.compress(b"x" * (1 << 25) + b"\n", 9) * 4


def zip_bomb() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number in range(4):
            archive.writestr(f"bomb_{number}.log", b"x" * (1 << 25) + b"\n")
    return data.getvalue()


@pytest.fixture
def evidence(tmp_path: Path) -> Callable[[bytes, str], Path]:
    def with_archive(data: bytes, name: str) -> Path:
        folder = tmp_path / "evidence"
        folder.mkdir()
        (folder / "log_rank_1.txt").write_text(WATCHDOG.format(rank=1))
        (folder / name).write_bytes(data)
        return folder

    return with_archive


def test_a_tar_with_ways_out_links_and_devices_is_read_as_plain_files(
    tmp_path: Path, evidence: Callable[[bytes, str], Path]
) -> None:
    folder = evidence(evil_tar(), "evil.tar.gz")
    before = set(tmp_path.rglob("*"))

    verdict = diagnose(read([str(folder)]))
    manifest = collect(Wanted((str(folder),)), str(tmp_path / "out"))
    bundle = make_bundle(BundleOrder((str(folder),), str(tmp_path / "t.tar.gz"), str(tmp_path / "t.map.json")))

    assert verdict.coverage.logs == 3
    assert [file.kind for file in manifest.files] == ["archive", "log"]
    with tarfile.open(tmp_path / "t.tar.gz") as archive:
        inside = archive.getmembers()
    assert all(info.isreg() and ".." not in info.name and not info.name.startswith("/") for info in inside)
    assert sum("escaped" in item.name or "absolute" in item.name for item in bundle.inside) == 2
    new = {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - before}
    assert new == {"out", "t.tar.gz", "t.map.json"}


@pytest.mark.parametrize(("bomb", "name"), [(gzip_bomb, "bomb.log.gz"), (zip_bomb, "bomb.zip")])
def test_a_bomb_is_left_out_where_its_budget_ends_and_the_rest_is_packed(
    tmp_path: Path, evidence: Callable[[bytes, str], Path], bomb: Callable[[], bytes], name: str
) -> None:
    data = bomb()
    folder = evidence(data, name)

    capture = read([str(folder)])
    manifest = collect(Wanted((str(folder),)), str(tmp_path / "out"))
    bundle = make_bundle(BundleOrder((str(folder),), str(tmp_path / "t.tar.gz"), str(tmp_path / "t.map.json")))

    assert any("expands more than" in problem.text for problem in capture.problems)
    assert {file.kind: file.size for file in manifest.files}["archive"] == len(data)
    assert any("expands more than" in problem.text for problem in bundle.left_out)
    assert "evidence/evidence/log_rank_1.txt" in [item.name for item in bundle.inside]
    assert sum(item.size or 0 for item in bundle.inside) < 80 << 20
