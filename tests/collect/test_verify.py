"""A bundle that was damaged on its way is told from one that is whole."""

import io
import tarfile
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest

from collect.planted import plant
from forkpoint.cli import bundle
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.gather.bundle import BundleOrder, make_bundle
from forkpoint.gather.bundle_check import verify_bundle
from looping import for_each


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    out = folder / "t.tar.gz"
    make_bundle(BundleOrder((str(plant(folder / "evidence")),), str(out), str(folder / "t.map.json")))
    return out


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        return {info.name: stream.read() for info in opened if (stream := opened.extractfile(info))}


def packed(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


def log_of(files: dict[str, bytes]) -> str:
    return next(name for name in files if name.endswith("rank_0.txt"))


def typed(*argv: str | Path) -> int:
    parser = ArgumentParser()
    bundle.COMMAND.add_arguments(parser)
    return bundle.COMMAND.run(parser.parse_args([str(word) for word in argv]))


def test_a_whole_bundle_is_sound_and_so_is_one_that_was_packed_again(archive: Path, tmp_path: Path) -> None:
    found = verify_bundle(str(archive))
    again = verify_bundle(str(packed(members(archive), tmp_path / "again.tar.gz")))

    assert found.problems == again.problems == ()
    assert found.sound == again.sound == len(members(archive)) - 1


@for_each(
    ("change", "says"),
    [
        (lambda files: files | {log_of(files): files[log_of(files)].replace(b"NCCL", b"nccl", 1)}, "differs from what was packed"),
        (lambda files: {name: data for name, data in files.items() if name != log_of(files)}, "is missing"),
        (lambda files: files | {"evidence/more.txt": b""}, "is not in the manifest"),
    ],
)  # fmt: skip
def test_one_changed_missing_or_new_file_is_named(
    archive: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], says: str
) -> None:
    files = change(members(archive))

    found = verify_bundle(str(packed(files, tmp_path / "t.tar.gz")))

    (problem,) = found.problems
    assert problem.text == says
    assert problem.file in (log_of(members(archive)), "evidence/more.txt")


def test_a_cut_bundle_and_another_archive_are_refused(archive: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:-3000])

    with pytest.raises(UnreadableInput):
        verify_bundle(str(cut))
    with pytest.raises(UnreadableInput, match="no manifest"):
        verify_bundle(str(packed({"a": b"b"}, tmp_path / "other.tar.gz")))


def test_the_command_says_what_is_wrong_by_its_exit_code(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = packed(members(archive) | {"evidence/\x1b[31m.txt": b""}, tmp_path / "t.tar.gz")

    assert typed("--verify", archive) == 0
    assert "files match the manifest, 0 do not" in capsys.readouterr().out
    assert typed("--verify", changed) == 1
    assert "\x1b" not in capsys.readouterr().out
    with pytest.raises(UsageError, match="takes no PATH"):
        typed("--verify", archive, tmp_path)
    with pytest.raises(UsageError, match="give the evidence"):
        typed("--dry-run")
