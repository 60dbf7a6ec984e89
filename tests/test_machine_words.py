"""What kernels and RAS say, weighed beside what ranks show: each rule has a case it must find and near misses."""

from pathlib import Path

import pytest

from forkpoint.knowledge.base import EntryKind, entries
from forkpoint.model.verdict import Action, Cause, Verdict
from looping import for_each
from written_jobs import HEADER, TIMEOUT_S, WrittenJob, glog, xid

CUDA_ERROR = "[rank3]: RuntimeError: CUDA error: unspecified launch failure"
OOM = "Out of memory: Killed process {pid} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0"


def rank_3_gone(folder: Path, *says: str, zone_s: int = 0) -> WrittenJob:
    """Rank 3 leaves no dump; the others time out and dump."""
    job = WrittenJob(folder, zone_s=zone_s)
    job.write_dumps((0, 1, 2))
    for rank in range(3):
        job.write_log(rank)
    job.write_log(3, *says, times_out=False)
    return job


def all_stuck(folder: Path, *says: str) -> WrittenJob:
    """All issue the op, none finishes it."""
    job = WrittenJob(folder)
    job.write_dumps((0, 1, 2, 3))
    for rank in range(4):
        job.write_log(rank, *(says if rank == 3 else ()))
    return job


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...], Action]:
    return verdict.cause, verdict.suspects, verdict.action


# ------------------------------------------------------------------------------------------------ a GPU's fault, rank gone


@for_each("zone_s", [0, -8 * 3600])
@for_each("says", [(), (CUDA_ERROR,)])
def test_a_lost_rank_whose_gpu_fell_off_the_bus_is_told_with_its_xid(tmp_path, says, zone_s) -> None:
    job = rank_3_gone(tmp_path, *says, zone_s=zone_s)
    job.write_kernel(xid(3, 79), xid(3, 45), second=job.hang_s + 1)

    verdict = job.diagnose()

    assert answer(verdict) == (Cause.RANK_LOST, (3,), Action.REPLACE_NODE)
    assert "Xid 79 (the GPU has fallen off the bus)" in verdict.summary
    assert "node-1" in verdict.summary
    assert verdict.confidence == 0.95
    assert any(e.file.endswith("kern_node-1.log") and e.where == "line 1" for e in verdict.findings[0].evidence)


@pytest.mark.parametrize("code", [13, 31])
def test_an_xid_of_programs_takes_no_node_out(tmp_path, code) -> None:
    job = rank_3_gone(tmp_path, CUDA_ERROR)
    job.write_kernel(xid(3, code, "MMU Fault"), xid(3, 43, "Ch 8"), second=job.hang_s + 1)

    assert answer(job.diagnose()) == (Cause.RANK_LOST, (3,), Action.FIX_CODE_OR_HARDWARE)


def test_an_xid_that_may_be_either_is_looked_into(tmp_path) -> None:
    job = rank_3_gone(tmp_path, CUDA_ERROR)
    job.write_kernel(xid(3, 109, "CTX SWITCH TIMEOUT"), second=job.hang_s + 1)

    assert answer(job.diagnose()) == (Cause.RANK_LOST, (3,), Action.INVESTIGATE)


@for_each("codes", [(45,), (154,), (43,), (94,), (95, 45), (63,), (45, 154)])
def test_what_only_follows_or_harms_nobody_is_no_reason(tmp_path, codes) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(*(xid(3, code, "Ch 8") for code in codes), second=job.hang_s + 1)

    verdict = job.diagnose()

    assert answer(verdict) == (Cause.RANK_LOST, (3,), Action.INVESTIGATE)
    assert "Xid" not in verdict.summary


@for_each("seconds", [-86400, -3600, 3600])
def test_an_xid_of_another_time_is_a_note(tmp_path, seconds) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(xid(3, 79), second=job.hang_s + seconds)

    verdict = job.diagnose()

    assert verdict.action is Action.INVESTIGATE
    assert "Xid" not in verdict.summary
    assert any("Xid" in note for note in verdict.coverage.notes)


def test_an_xid_whose_time_does_not_compare_is_named_and_takes_no_node_out(tmp_path) -> None:
    job = rank_3_gone(tmp_path, CUDA_ERROR)
    job.write_kernel(xid(3, 79))

    verdict = job.diagnose()

    assert answer(verdict) == (Cause.RANK_LOST, (3,), Action.INVESTIGATE)
    assert "a time that cannot be compared" in verdict.summary


def test_an_xid_that_names_the_ranks_process_is_of_this_incident_without_any_date(tmp_path) -> None:
    job = rank_3_gone(tmp_path, CUDA_ERROR)
    job.write_kernel(xid(3, 79, pid=job.pid(3)))

    assert answer(job.diagnose()) == (Cause.RANK_LOST, (3,), Action.REPLACE_NODE)


def test_a_fault_on_a_gpu_where_no_rank_ran_accuses_nobody(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(xid(9, 79), second=job.hang_s + 1)

    assert "Xid" not in job.diagnose().summary


def test_a_fault_on_the_same_bus_of_another_host_accuses_nobody(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(xid(3, 79), second=job.hang_s + 1, host="node-2")

    assert "Xid" not in job.diagnose().summary


def test_a_rank_that_raised_in_its_own_code_is_not_said_to_have_lost_its_gpu(tmp_path) -> None:
    raised = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/train/train.py", line 1, in f\n[rank3]: ValueError: bad'
    job = rank_3_gone(tmp_path, raised)
    job.write_kernel(xid(3, 79), second=job.hang_s + 1)

    assert answer(job.diagnose()) == (Cause.RANK_LOST, (3,), Action.FIX_CODE)


def test_a_victims_gpu_fault_does_not_make_it_the_lost_rank(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(xid(1, 79), second=job.hang_s + 1)

    verdict = job.diagnose()

    assert 1 not in verdict.suspects
    assert verdict.action is not Action.REPLACE_NODE


# ----------------------------------------------------------------------------------------------- a GPU's fault, rank there


def test_a_hang_names_the_rank_whose_gpu_had_a_fault_and_looks_into_it(tmp_path) -> None:
    job = all_stuck(tmp_path)
    job.write_kernel(xid(3, 79), second=job.hang_s + 1)

    verdict = job.diagnose()

    assert answer(verdict) == (Cause.GPU_STALL, (3,), Action.INVESTIGATE)
    assert "Xid 79" in verdict.summary


def test_a_hang_with_a_fault_and_the_ranks_own_error_takes_the_node_out(tmp_path) -> None:
    job = all_stuck(tmp_path, CUDA_ERROR)
    job.write_kernel(xid(3, 79), second=job.hang_s + 1)

    assert answer(job.diagnose()) == (Cause.GPU_STALL, (3,), Action.REPLACE_NODE)


@pytest.mark.parametrize("second", [None, -86400])
def test_a_hang_with_a_fault_of_another_or_unknown_time_names_nobody(tmp_path, second) -> None:
    job = all_stuck(tmp_path)
    job.write_kernel(xid(3, 79), second=None if second is None else job.hang_s + second)

    verdict = job.diagnose()

    assert (verdict.cause, verdict.suspects) == (Cause.GPU_STALL, ())
    assert verdict.action is Action.FIX_CODE_OR_HARDWARE


def test_faults_on_half_of_the_gpus_name_nobody(tmp_path) -> None:
    job = all_stuck(tmp_path)
    job.write_kernel(xid(2, 79), xid(3, 79), second=job.hang_s + 1)

    assert job.diagnose().suspects == ()


# ------------------------------------------------------------------------------------------------------------- memory


def test_a_rank_that_the_kernel_killed_for_memory_is_told_so(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(OOM.format(pid=job.pid(3)), second=job.hang_s + 1)

    verdict = job.diagnose()

    assert answer(verdict) == (Cause.RANK_LOST, (3,), Action.INVESTIGATE)
    assert "killed by the out-of-memory killer of node-1" in verdict.summary


@pytest.mark.parametrize(("pid", "host"), [(9999, "node-1"), (4003, "node-2")])
def test_another_process_that_was_killed_for_memory_explains_nothing(tmp_path, pid, host) -> None:
    job = rank_3_gone(tmp_path)
    job.write_kernel(OOM.format(pid=pid), second=job.hang_s + 1, host=host)

    assert "memory" not in job.diagnose().summary


def test_a_rank_that_lived_on_was_not_killed_for_memory(tmp_path) -> None:
    job = all_stuck(tmp_path)
    job.write_kernel(OOM.format(pid=job.pid(3)), second=job.hang_s + 1)

    assert job.diagnose().cause is not Cause.RANK_LOST


# ---------------------------------------------------------------------------------------------------------------- RAS

RAS = """\
Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  {status}

"""
MISSING = """\
Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: {rank}

"""


def test_a_rank_that_ras_did_not_reach_is_lost_more_surely(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    alone = job.diagnose()
    (tmp_path / "ras.txt").write_text(RAS.format(status="INCOMPLETE") + MISSING.format(rank=3))

    verdict = job.diagnose()

    assert answer(verdict) == answer(alone) == (Cause.RANK_LOST, (3,), Action.INVESTIGATE)
    assert (alone.confidence, verdict.confidence) == (0.7, 0.85)


def test_ras_alone_accuses_nobody(tmp_path) -> None:
    job = all_stuck(tmp_path)
    (tmp_path / "ras.txt").write_text(RAS.format(status="INCOMPLETE") + MISSING.format(rank=2))

    assert job.diagnose().suspects == ()


def test_ras_that_says_all_is_well_proves_nothing(tmp_path) -> None:
    job = all_stuck(tmp_path)
    alone = job.diagnose()
    (tmp_path / "ras.txt").write_text(RAS.format(status="OK"))

    assert answer(job.diagnose()) == answer(alone)


def test_a_missing_rank_of_a_smaller_communicator_is_not_that_rank_of_the_job(tmp_path) -> None:
    job = rank_3_gone(tmp_path)
    smaller = RAS.replace(" 4         4   RUNNING", " 8         8   RUNNING")
    (tmp_path / "ras.txt").write_text(smaller.format(status="INCOMPLETE") + MISSING.format(rank=3))

    assert job.diagnose().confidence == 0.7


def test_ranks_that_did_not_join_and_do_not_answer_are_named_more_surely(tmp_path) -> None:
    job = WrittenJob(tmp_path)
    for rank in range(3):
        stamp = glog(job.hang_s + TIMEOUT_S)
        said = (
            HEADER.format(rank=rank, stamp=stamp, line=1)
            + "Timed out after 60 seconds waiting for clients. 3/4 clients joined."
        )
        job.write_log(rank, said, times_out=False)
    alone = job.diagnose()
    (tmp_path / "ras.txt").write_text(RAS.format(status="INCOMPLETE") + MISSING.format(rank=3))

    verdict = job.diagnose()

    assert (alone.cause, alone.suspects) == (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, (3,))
    assert (alone.confidence, verdict.confidence) == (0.7, 0.85)


# ------------------------------------------------------------------------------------------------------------ where it is


@for_each("name", ["dmesg_node-1.txt", "node-1/dmesg.txt", "dmesg.txt"])
def test_plain_dmesg_is_placed_by_its_file_or_where_the_job_had_one_host(tmp_path, name) -> None:
    job = rank_3_gone(tmp_path, CUDA_ERROR)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"[ 1234.567890] {xid(3, 79, pid=job.pid(3))}\n")

    assert job.diagnose().action is Action.REPLACE_NODE


@pytest.mark.parametrize("name", ["dmesg.txt", "dmesg_node-10.txt"])
def test_plain_dmesg_of_some_host_of_two_is_a_note(tmp_path, name) -> None:
    job = WrittenJob(tmp_path, hosts=("node-1", "node-2"))
    job.write_dumps((0, 1, 2))
    for rank in range(3):
        job.write_log(rank)
    job.write_log(3, times_out=False)
    (tmp_path / name).write_text(f"[ 1234.567890] {xid(3, 79, pid=job.pid(3))}\n")

    assert "Xid" not in job.diagnose().summary


def test_the_knowledge_base_says_of_every_xid_where_it_comes_from_and_what_it_does() -> None:
    for entry in entries(EntryKind.XID):
        facts = dict(entry.facts)
        assert facts["likelier origin"].split(":")[0] in {
            *("hardware", "application", "either", "driver or firmware", "follow-on", "none", "unknown"),
        }
        assert "effect on a job" in facts or facts["likelier origin"].startswith("none")
