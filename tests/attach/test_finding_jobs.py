"""Which processes are ranks of which job: real processes with an environment, looked at through /proc."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from forkpoint.cli import main
from forkpoint.errors import UsageError
from forkpoint.gather.attach import jobs
from forkpoint.gather.attach.jobs import LiveJob, choose_job, find_jobs, job_of_pids
from forkpoint.gather.attach.stacks import why_forbidden
from forkpoint.gather.collect import questions_to
from forkpoint.live.rank_socket import socket_name

WAITS = "import sys; print(1, flush=True); sys.stdin.read()"
LOADER = "import os, sys; p = os.fork(); print(1, flush=True) if p else None; sys.stdin.read()"


@contextmanager
def processes(*environs: Mapping[str, str], program: str = WAITS, before: tuple[str, ...] = ()) -> Iterator[list[int]]:
    """Each has said that it runs; all end when their input does."""
    started = [
        subprocess.Popen(
            [*before, sys.executable, "-c", program], env={"PATH": os.environ["PATH"], **environ},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for environ in environs
    ]  # fmt: skip
    try:
        for process in started:
            assert process.stdout
            process.stdout.read(1)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.communicate()


def environ(rank: int, port: int, world: int = 2, **more: str) -> dict[str, str]:
    told = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return told | {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)} | more


def jobs_at(*ports: int) -> list[LiveJob]:
    return [job for job in find_jobs() if job.names & {str(port) for port in ports}]


def test_two_jobs_are_told_apart_listed_and_chosen_by_port_or_name() -> None:
    with (
        processes(environ(0, 31001), environ(1, 31001)) as first,
        processes(
            environ(0, 31002, TORCHELASTIC_RUN_ID="night"), environ(1, 31002, TORCHELASTIC_RUN_ID="night")
        ) as second,
    ):
        jobs = jobs_at(31001, 31002)

        assert [[rank.pid for rank in job.ranks] for job in jobs] == [first, second]
        assert choose_job(jobs, "31002") is choose_job(jobs, "night") is jobs[1]
        with pytest.raises(UsageError, match="2 jobs run here; choose one with --job") as error:
            choose_job(jobs, None)
        assert f"ranks 0-1 of 2 (pids {first[0]} {first[1]})" in str(error.value)
        with pytest.raises(UsageError, match="--job noon: no job here has that name"):
            choose_job(jobs, "noon")


def test_shells_around_a_rank_and_its_loaders_are_not_ranks() -> None:
    shell = ("sh", "-c", '"$0" "$@"; true')
    with processes(environ(0, 31003), environ(1, 31003), program=LOADER, before=shell) as shells:
        (job,) = jobs_at(31003)

        assert [rank.rank for rank in job.ranks] == [0, 1]
        assert not {rank.pid for rank in job.ranks} & set(shells)


def test_a_launcher_that_has_a_rank_of_its_own_is_not_one() -> None:
    """As Kubernetes' operators start torchrun: RANK there is the number of the node."""
    program = (
        "import os, subprocess, sys\n"
        "child = dict(os.environ, TORCHELASTIC_RUN_ID='x', LOCAL_RANK='0', RANK='8')\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {WAITS!r}], env=child)\n"
        "worker.wait()\n"
    )
    with processes({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "31004"}, program=program) as (launcher,):
        (job,) = jobs_at(31004)

        assert [rank.rank for rank in job.ranks] == [8]
        assert job.ranks[0].pid != launcher


def test_a_local_rank_without_a_process_is_lost_only_where_the_launcher_numbers_them() -> None:
    with (
        processes(environ(0, 31005, 3), environ(2, 31005, 3)),
        processes({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "31006"}),
    ):
        numbered, bare = jobs_at(31005), jobs_at(31006)

        assert [job.lost for job in numbered] == [(1,)]
        assert [job.lost for job in bare] == [()]


def test_ranks_that_an_earlier_run_left_behind_are_not_mixed_with_those_of_this_run() -> None:
    """Its launcher was killed, its ranks go on, and the job was begun again on the same port."""
    with (
        processes(environ(0, 31007), environ(1, 31007)) as earlier,
        processes(environ(0, 31007), environ(1, 31007)) as now,
    ):
        (job,) = jobs_at(31007)

        assert [rank.pid for rank in job.ranks] == now
        assert job.leftovers == tuple(sorted(earlier))
        assert "2 ranks of an earlier run of it still run and are not asked" in job.described


def test_a_new_run_is_whole_though_the_earlier_one_has_lost_ranks() -> None:
    """Which launcher began a rank decides: the order in which ranks start does not."""
    launcher = (
        "import os, subprocess, sys\n"
        "told = [dict(os.environ, TORCHELASTIC_RUN_ID='none', RANK=r) for r in os.environ['RANKS'].split()]\n"
        f"ranks = [subprocess.Popen([sys.executable, '-c', {WAITS!r}], env=one, stdout=-1) for one in told]\n"
        "print(len([rank.stdout.read(1) for rank in ranks]), flush=True)\n"
        "[rank.wait() for rank in ranks]\n"
    )
    shared = {"WORLD_SIZE": "3", "MASTER_PORT": "31008"}
    with (
        processes({**shared, "RANKS": "1 2"}, program=launcher),
        processes({**shared, "RANKS": "0 1 2"}, program=launcher) as (parent,),
    ):
        (job,) = jobs_at(31008)

        parents = {int(Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[1]) for rank in job.ranks}
        assert ([rank.rank for rank in job.ranks], parents) == ([0, 1, 2], {parent})
        assert len(job.leftovers) == 2


def test_processes_that_were_named_get_the_ranks_they_were_given() -> None:
    with processes({}, {}) as (one, other):
        assert [rank.rank for rank in job_of_pids([(None, one), (None, other)]).ranks] == [0, 1]
        assert {rank.pid: rank.rank for rank in job_of_pids([(7, one), (3, other)]).ranks} == {one: 7, other: 3}
        with pytest.raises(UsageError, match="the same rank; name them as RANK=PID"):
            job_of_pids([(1, one), (1, other)])


def test_what_cannot_be_meant_is_said_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "999999999"]) == 2
    assert "there is no such process" in capsys.readouterr().err
    assert main(["attach", "0=x"]) == 2
    assert "must be PID, or RANK=PID" in capsys.readouterr().err
    assert main(["attach", "12", "--hosts", "a"]) == 2
    assert "give one of: pids" in capsys.readouterr().err
    assert main(["attach", "--debug-server", "127.0.0.1:1"]) == 2
    assert "is torch.distributed.debug on in the job?" in capsys.readouterr().err


def test_who_forbids_ptrace_is_told_by_what_the_kernel_shows(tmp_path: object) -> None:
    proc = str(tmp_path)
    for seccomp, capabilities, scope, wanted in (
        ("2", "0000000000080000", None, "seccomp=unconfined"),
        ("0", "0000000000080000", None, "security module"),
        ("0", "0000000000000000", "1", "kernel.yama.ptrace_scope is 1"),
        ("2", "0000000000000000", None, "--cap-add SYS_PTRACE"),
    ):
        _plant(proc, seccomp, capabilities, scope)
        assert wanted in why_forbidden(os.getpid(), proc)


def _plant(proc: str, seccomp: str, capabilities: str, scope: str | None) -> None:
    for folder in ("self", str(os.getpid()), "sys/kernel/yama"):
        os.makedirs(f"{proc}/{folder}", exist_ok=True)  # noqa: PTH103 - texts
    with open(f"{proc}/self/status", "w") as file:  # noqa: PTH123 - as above
        file.write(f"Name:\tpython\nCapEff:\t{capabilities}\nSeccomp:\t{seccomp}\n")
    with open(f"{proc}/sys/kernel/yama/ptrace_scope", "w") as file:  # noqa: PTH123 - as above
        file.write(scope or "0")


def test_forkpoint_itself_is_no_rank_though_srun_numbers_it_as_one() -> None:
    """As `srun ... python -m forkpoint attach --send` and `srun forkpoint run` are started."""
    told = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "31009"}
    server = [sys.executable, "-m", "forkpoint", "diagnose", "-"]
    environment = {**os.environ, **told}
    with subprocess.Popen(server, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as waiting:
        with processes(told) as ranks:
            assert [rank.pid for job in jobs_at(31009) for rank in job.ranks] == ranks
        waiting.kill()


def test_guards_that_number_their_processes_alike_have_names_of_their_own(tmp_path: Path) -> None:
    """Containers may share the network, in which sockets are named, and each have a process 7."""
    names: list[str] = []
    for container in ("a", "b"):
        (tmp_path / container / "ns").mkdir(parents=True)
        (tmp_path / container / "ns" / "pid").symlink_to(f"pid:[{container}]")
        names.append(socket_name(str(tmp_path / container), 7))

    assert names[0] != names[1]


def test_a_number_that_no_job_has_is_asked_of_slurm_only_where_slurm_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert main(["attach", "--job", "31013"]) == 2
    assert "squeue" not in capsys.readouterr().err


def test_a_process_that_the_kernel_hides_from_its_own_user_is_said_to_be_in_a_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "read_environ", lambda *_: None)

    with pytest.raises(UsageError, match="cannot be read from here; run forkpoint in its container"):
        job_of_pids([(0, os.getpid())])


def test_a_rank_whose_program_and_folder_may_not_be_read_is_a_rank(tmp_path: Path) -> None:
    """Some sandboxes without ptrace hide the links `exe` and `cwd`, and nothing else."""
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "cmdline").write_bytes(b"/usr/bin/python3.11\0train.py\0")
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").write_bytes(b"/bin/bash\0start.sh\0")

    assert jobs.look_at(11, environ(3, 31009), str(tmp_path)) is not None
    assert jobs.look_at(12, environ(3, 31009), str(tmp_path)) is None


def test_the_answers_of_several_jobs_go_to_folders_of_their_own() -> None:
    with processes(environ(0, 31010)), processes(environ(0, 31011)):
        one, two = jobs_at(31010, 31011)

        assert [question.label for question in questions_to([one, two], 0.0)] == ["asked-1", "asked-2"]
        assert [question.label for question in questions_to([one], 0.0)] == ["asked"]
