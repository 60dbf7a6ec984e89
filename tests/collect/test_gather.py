"""Evidence is found where it lies, copied and never moved, and the manifest says what each file is."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from collect.planted import WATCHDOG
from forkpoint.errors import UsageError
from forkpoint.evidence import read
from forkpoint.gather.attach.jobs import find_live_ranks
from forkpoint.gather.collect import Wanted, collect
from forkpoint.gather.folder import CollectLimits, FileKind, Manifest, find_kind
from forkpoint.gather.this_machine import has_grown, usual_paths
from forkpoint.pipeline import diagnose
from ingest.machine import answers
from looping import for_each
from small_jobs import T0, SmallJob


def job() -> SmallJob:
    made = SmallJob(2)
    for _ in range(8):
        made.op()
    made.op([0], state="scheduled")
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "dumps").mkdir(parents=True)
    for rank in range(2):
        (folder / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(job().dump(rank))
        (folder / f"log_rank_{rank}.txt").write_text(f"step {rank}\n" + WATCHDOG.format(rank=rank))
    (folder / "train.py").write_text("import torch\n")
    (folder / "weights.pt").write_bytes(b"PK\x03\x04weights")
    return folder


def gathered(tmp_path: Path, *places: str | Path, **more: object) -> Manifest:
    return collect(Wanted(tuple(map(str, places)), **more), str(tmp_path / "out"))  # type: ignore[arg-type]


def test_dumps_and_logs_are_copied_with_times_and_hashes_and_nothing_else_is(tmp_path: Path, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    manifest = gathered(tmp_path, run)

    out = tmp_path / "out"
    assert sorted(file.kind for file in manifest.files) == ["dump", "dump", "log", "log"]
    for file in manifest.files:
        copy = out / file.file
        assert copy.read_bytes() == before[Path(file.origin)]
        assert hashlib.sha256(copy.read_bytes()).hexdigest() == file.sha256
        assert copy.stat().st_mtime == file.modified == Path(file.origin).stat().st_mtime
        assert (file.cut, file.growing, file.truncated) == (None, False, None)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert json.loads((out / "manifest.json").read_text())["schema"] == "forkpoint.collect/1"
    assert diagnose(read([str(out)])).suspects == diagnose(read([str(run)])).suspects == (1,)


def test_a_cut_dump_one_of_another_run_and_an_old_log_are_marked(tmp_path: Path, run: Path) -> None:
    old = job()
    for entries in old.entries.values():
        for entry in entries:
            entry.update({key: value - 86_400 * 10**9 for key, value in entry.items() if key.endswith("_ns") and value})
    (run / "old").mkdir()
    (run / "old" / "nccl_trace_rank_0").write_bytes(old.dump(0))
    whole = job().dump(1)
    (run / "dumps" / "nccl_trace_rank_1").write_bytes(whole[: len(whole) * 3 // 4])
    for log in run.glob("log_rank_*"):
        os.utime(log, (T0 / 1e9 + 60, T0 / 1e9 + 60))
    os.utime(run / "log_rank_1.txt", (T0 / 1e9 - 7200, T0 / 1e9 - 7200))

    files = {Path(file.origin).relative_to(run).as_posix(): file for file in gathered(tmp_path, run).files}

    assert "from another run" in (files["old/nccl_trace_rank_0"].stale or "")
    assert "cut at byte" in (files["dumps/nccl_trace_rank_1"].truncated or "")
    assert "before the first call" in (files["log_rank_1.txt"].stale or "")
    rest = [files["dumps/nccl_trace_rank_0"], files["log_rank_0.txt"]]
    assert [(file.stale, file.truncated) for file in rest] == [(None, None)] * 2


def test_a_log_that_is_written_to_meanwhile_is_growing(tmp_path: Path, run: Path) -> None:
    manifest = gathered(tmp_path, run / "log_rank_0.txt")
    still = has_grown(manifest.files[0])
    with (run / "log_rank_0.txt").open("a") as log:
        log.write("more\n")

    assert (still, has_grown(manifest.files[0])) == (False, True)
    assert not has_grown(replace(manifest.files[0], origin=str(tmp_path / "gone")))


def test_dumps_that_a_log_names_are_fetched_and_other_files_it_names_are_not(tmp_path: Path, run: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for rank in range(2):
        (run / "dumps" / f"nccl_trace_rank_{rank}").rename(elsewhere / f"trace_{rank}")
    (elsewhere / "shadow").write_text("root:x:0\n")
    with (run / "log_rank_0.txt").open("a") as log:
        log.write(f"Finished writing Flight Recorder debug info to {elsewhere}/trace_0\n")
        log.write(f"Finished writing Flight Recorder debug info to {elsewhere}/shadow\n")

    origins = {file.origin for file in gathered(tmp_path, run).files}

    assert {str(elsewhere / "trace_0"), str(elsewhere / "trace_1")} < origins
    assert str(elsewhere / "shadow") not in origins


def test_what_does_not_fit_is_said_and_dumps_come_first(tmp_path: Path, run: Path) -> None:
    few = gathered(tmp_path, run, limits=CollectLimits(files=2))
    small = collect(Wanted((str(run),), limits=CollectLimits(total_bytes=100)), str(tmp_path / "small"))
    late = collect(Wanted((str(run),), limits=CollectLimits(seconds=1e-9)), str(tmp_path / "late"))

    assert [file.kind for file in few.files] == [FileKind.DUMP, FileKind.DUMP]
    assert any("--max-files" in note.text for note in few.notes)
    assert sum(file.size for file in small.files) == 100
    assert "of" in (small.files[0].cut or "")
    assert any("--max-mib" in note.text for note in small.notes)
    assert (late.files, "--seconds" in late.notes[0].text) == ((), True)


def test_of_a_log_that_does_not_fit_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.gather.this_machine.MAX_BYTES", 1000)
    (tmp_path / "train.log").write_text("step 1\n" * 1000 + WATCHDOG.format(rank=0))

    (file,) = gathered(tmp_path, tmp_path / "train.log", limits=CollectLimits(total_bytes=2000)).files

    kept = (tmp_path / "out" / file.file).read_text()
    assert kept.startswith("step 1\n")
    assert kept.endswith(WATCHDOG.format(rank=0))
    assert "left out" in (file.cut or "")


def test_a_place_that_is_not_there_is_a_note_and_the_rest_goes_on(tmp_path: Path, run: Path) -> None:
    manifest = gathered(tmp_path, tmp_path / "nowhere", run)

    assert len(manifest.files) == 4
    assert [note.text for note in manifest.notes] == [f"{tmp_path}/nowhere: no such file or directory"]


def test_the_same_file_by_two_ways_is_kept_once(tmp_path: Path, run: Path) -> None:
    assert len(gathered(tmp_path, run, run / "dumps").files) == 4


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        collect(Wanted((str(run),)), str(run))


def test_usual_places_are_those_of_the_environment_and_of_ranks_that_run(tmp_path: Path, run: Path) -> None:
    """A real process with a rank in its environment; it is looked at, and nothing is sent to it."""
    writes = {"TORCH_FR_DUMP_TEMP_FILE": f"{run}/dumps/nccl_trace_rank_"}
    own = usual_paths([], {**writes, "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(tmp_path)})
    (tmp_path / "slurm-7.out").write_text("x")
    logs = tmp_path / "logs" / "run_1" / "attempt_0" / "0"
    logs.mkdir(parents=True)
    environ = {
        "RANK": "41",
        "WORLD_SIZE": "64",
        "FORKPOINT_DIR": "guard",
        "SLURM_JOB_ID": "7",
        "TORCHELASTIC_ERROR_FILE": f"{logs}/error.json",
    }
    (tmp_path / "guard").mkdir()
    with (tmp_path / "stdout.log").open("w") as log:
        rank = subprocess.Popen(
            [sys.executable, "-c", "print(1, flush=True); input()"],
            env=environ, cwd=tmp_path, stdout=log, stdin=subprocess.PIPE,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 600
            while not (tmp_path / "stdout.log").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            (live,) = [found for found in find_live_ranks() if found.pid == rank.pid]
        finally:
            rank.communicate(b"\n")
    found = usual_paths([live])

    assert own == [f"{run}/dumps/nccl_trace_rank_{rank}" for rank in range(2)]
    assert (live.rank, live.folder, live.outputs) == (41, str(tmp_path), (str(tmp_path / "stdout.log"),))
    assert {str(tmp_path / name) for name in ("guard", "slurm-7.out", "stdout.log", "logs/run_1")} <= set(found)
    assert rank.returncode == 0


@for_each(
    ("name", "head", "kind"),
    [
        ("anything", job().dump(0), FileKind.DUMP),
        ("train.log", b"step 1\n", FileKind.LOG),
        ("rank_3", b"step 1\n", FileKind.LOG),
        ("stderr.log", b"", FileKind.LOG),
        ("error.json", b'{"message": "x"}', FileKind.LOG),
        ("old.log.gz", b"\x1f\x8b", FileKind.ARCHIVE),
        ("dmesg.txt", b"[12345.678901] NVRM: Xid (PCI:0000:1b:00): 79, pid=4001\n", FileKind.KERNEL),
        ("ras.txt", answers.FEW_BEHIND.encode(), FileKind.RAS),
        ("train.py", b"import torch\n", None),
        ("config.json", b"{}", None),
        ("model.pt", b"PK\x03\x04", None),
        ("data.zip.part", b"PK\x03\x04", None),
        ("core.1234", b"\x7fELF\0\0", None),
        ("model.ckpt", b"\x80\x02}", None),
    ],
)
def test_evidence_is_known_by_content_and_name(name: str, head: bytes, kind: FileKind | None) -> None:
    assert find_kind(head, name) is kind
