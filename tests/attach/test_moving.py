"""Ranks of a running job are asked at different moments: while they move, only what time cannot undo is told."""

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from cases import verdict_of
from forkpoint import diagnose
from forkpoint.gather.attach.folder import AskedRank, Attached, with_attached
from forkpoint.gather.attach.stacks import ProcessSample
from forkpoint.model.verdict import Probe


def attached(*, moved: bool) -> Attached:
    missing = ("no stacks: not taken",)
    rank = AskedRank(0, "node", 11, "guard", "", missing, ProcessSample("S"), visible=True, moved=moved, waiting=False)
    return Attached("train.py", 2, (rank,), (), 2.0)


def test_a_late_rank_is_not_named_while_ranks_move() -> None:
    late = verdict_of("0003")
    assert (late.cause, bool(late.suspects)) == ("host-stall", True)

    told = with_attached(late, attached(moved=True))

    assert (told.cause, told.suspects, told.sites, told.hypotheses) == ("healthy", (), (), ())
    assert told.headline == "The job moves: rank 0 went on during the look; nothing hangs."


def test_what_time_cannot_undo_is_told_though_ranks_move() -> None:
    parted = verdict_of("0001")
    assert parted.cause == "divergent-path"

    assert with_attached(parted, attached(moved=True)).suspects == parted.suspects


def test_what_to_type_has_the_pid_of_the_rank_and_a_rank_without_a_stack_its_kernel_function() -> None:
    stuck = verdict_of("0003")
    finding = replace(stuck.findings[0], probes=(Probe("py-spy dump --pid <pid of rank 0>"),))
    asked = replace(stuck, findings=(finding,), next=("py-spy dump --pid <pid of rank 0>, or of <pid of rank 1>",))
    sleeps = structs.replace(attached(moved=False).ranks[0], process=ProcessSample("S", kernel="nfs_wait_bit_killable"))
    seen = structs.replace(attached(moved=False), ranks=(sleeps,))

    told = with_attached(asked, seen)

    assert told.probes[0].title == "py-spy dump --pid 11"
    assert told.next == ("py-spy dump --pid 11, or of <pid of rank 1>",)
    assert "rank 0: its main thread waits in the kernel, in nfs_wait_bit_killable" in told.coverage.notes


def test_coverage_says_what_could_not_be_asked() -> None:
    notes = with_attached(verdict_of("0003"), attached(moved=False)).coverage.notes

    assert notes[-2:] == ("rank 0: no stacks: not taken", "rank 1: not asked")


def test_ranks_of_which_none_could_be_asked_are_not_called_files_without_evidence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("skipped\n[tool]\nwidth = 4 # without torch this is skipped\n")
    nothing = diagnose(str(tmp_path))
    silent = structs.replace(attached(moved=False).ranks[0], visible=False)

    told = with_attached(nothing, structs.replace(attached(moved=False), ranks=(silent,)))

    assert told.headline == "None of the 1 ranks could be asked, and their logs show no failure."
    assert told.next[0].startswith("let py-spy read the ranks")
