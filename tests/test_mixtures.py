"""Any mixture of files, packed or not, beside what machines say."""

import gzip
import io
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import forkpoint
from cases import CASES
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each

CAPTURE = CASES / "0003" / "capture"
INIT = (
    "node-7:100:101 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank {rank} nranks 4 cudaDev 0 nvmlDev 5 busId 3b000 "
    "commId 0xa53e9e07692e8540 - Init COMPLETE\n"
)
XID = "Nov 15 01:24:31 node-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"


def _packed(path: Path) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(CAPTURE.iterdir()):
                archive.write(file, f"job/{file.name}")
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
            archive.add(CAPTURE, "job")
    return path


def _diagnose(*paths: Path | str) -> Verdict:
    return forkpoint.diagnose(forkpoint.read([str(p) for p in paths]))


@for_each("name", ["job.zip", "job.tgz", "job.tar"])
def test_a_packed_folder_gives_the_verdict_of_the_folder(tmp_path: Path, name: str) -> None:
    packed, plain = _diagnose(_packed(tmp_path / name)), _diagnose(CAPTURE)

    assert (packed.cause, packed.suspects, packed.divergence) == (plain.cause, plain.suspects, plain.divergence)
    assert packed.evidence[0].file.startswith(str(tmp_path / "job"))


def test_packed_logs_come_through_standard_input(monkeypatch) -> None:
    logs = b"".join(file.read_bytes() for file in sorted(CAPTURE.glob("log_rank_*")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(logs))))

    assert "rank 0 had enqueued only 22" in _diagnose("-").summary


def test_a_broken_archive_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken = _packed(tmp_path / "job.tgz")
    broken.write_bytes(broken.read_bytes()[:900])

    verdict = _diagnose(broken, CAPTURE)

    assert verdict.cause is Cause.HOST_STALL
    assert any("job.tgz" in note for note in verdict.coverage.notes)


def test_a_kernel_message_about_the_suspects_gpu_is_joined_to_its_rank(tmp_path: Path) -> None:
    theirs = (CAPTURE / "log_rank_0.txt").read_text().splitlines(keepends=True)
    (tmp_path / "log_rank_0.txt").write_text(INIT.format(rank=0) + "".join(x for x in theirs if " busId " not in x))
    (tmp_path / "journal.txt").write_text(XID)
    others = [p for p in CAPTURE.iterdir() if p.name != "log_rank_0.txt"]

    verdict = _diagnose(tmp_path, *others)

    joined = [e for e in verdict.evidence if e.file.endswith("journal.txt")]
    assert [e.rank for e in joined] == [0]
    assert any("rank 0 ran on node-7 GPU 5" in note for note in verdict.coverage.notes)


def test_kernel_messages_alone_are_told_and_decide_nothing(tmp_path: Path) -> None:
    (tmp_path / "journal.txt").write_text(XID)

    verdict = _diagnose(tmp_path)

    assert (verdict.cause, verdict.suspects) == (Cause.INCONCLUSIVE, ())
    assert any("fallen off the bus" in note for note in verdict.coverage.notes)


def two_runs(folder: Path) -> Path:
    """Each in a folder of its own. A minute after the GPU of the first hung, a rank of the second died."""
    for number in ("0004", "0002"):
        shutil.copytree(CASES / number / "capture", folder / number)
    return folder


def test_what_another_run_logged_explains_nothing_of_this_one(tmp_path: Path) -> None:
    verdict = _diagnose(two_runs(tmp_path))

    assert verdict.cause is _diagnose(CASES / "0004" / "capture").cause is Cause.GPU_STALL
    assert all("/0004/" in evidence.file for evidence in verdict.evidence)
    assert (verdict.coverage.logs, verdict.coverage.stacks) == (4, 4)
    assert str(tmp_path / "0002" / "log_rank_0.txt") in {one.file for one in verdict.coverage.set_aside}


def test_the_first_step_names_the_folder_of_the_other_run(tmp_path: Path) -> None:
    assert _diagnose(two_runs(tmp_path)).next[0] == f"forkpoint diagnose {tmp_path / '0002'}: another run"


def test_logs_beside_old_dumps_are_used_if_the_new_dumps_lie_alone(tmp_path: Path) -> None:
    """The folder of the logs has dumps of an earlier run; those of this run went elsewhere."""
    dumps = sorted((CASES / "0002" / "capture").glob("nccl_trace_*"))
    shutil.copytree(CASES / "0004" / "capture", tmp_path / "job", ignore=shutil.ignore_patterns("nccl_trace_*"))
    shutil.copytree(CASES / "0004" / "capture", tmp_path / "dumps", ignore=shutil.ignore_patterns("*.txt"))
    for dump in dumps:
        shutil.copy(dump, tmp_path / "job")

    verdict = _diagnose(tmp_path)

    assert (verdict.coverage.logs, verdict.coverage.stacks) == (4, 4)


def test_files_that_are_no_evidence_are_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("# without torch this fails, so it is skipped\n[tool]\nwidth = 4\n")

    verdict = _diagnose(tmp_path)

    assert verdict.headline.startswith("Nothing in these files names a rank or a failure")
    assert verdict.hypotheses == ()
    assert "forkpoint attach" in verdict.next[0]


def test_the_program_beside_its_evidence_is_no_log(tmp_path: Path) -> None:
    shutil.copytree(CASES / "0003", tmp_path / "job", ignore=shutil.ignore_patterns("*.json", "*.toml"))

    assert _diagnose(tmp_path / "job").coverage.logs == _diagnose(CAPTURE).coverage.logs
