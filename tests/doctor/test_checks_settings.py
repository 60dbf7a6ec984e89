"""Settings, judged by the release of torch that reads them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from doctor.machine_samples import with_facts
from doctor.settings_samples import with_torch_and
from forkpoint.doctor.checks.recorder import (
    RECORDER_BUFFER,
    RECORDER_DUMP,
    RECORDER_ON,
    RECORDER_PATH,
    RECORDER_PATH_SURVIVES,
    RECORDER_PATH_UNIQUE,
    RECORDER_TIMING,
)
from forkpoint.doctor.checks.settings import ASYNC_ERROR_HANDLING, TIMEOUTS, UNKNOWN_VARIABLES, VARIABLE_VALUES
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import (
    Disk,
    FileFacts,
    Process,
    System,
    empty_machine,
    with_disk,
    with_environ,
    with_files,
    with_processes,
)
from looping import for_each

OK, BAD, SKIPPED = CheckStatus.OK, CheckStatus.BAD, CheckStatus.SKIPPED
BY_RELEASE = (RECORDER_ON, RECORDER_BUFFER, RECORDER_DUMP, RECORDER_PATH, RECORDER_PATH_UNIQUE, RECORDER_PATH_SURVIVES)
FOLDER = FileFacts(4096, 1000, 0.0, is_folder=True)
UID = "6f3a2b1c-77aa-4c1e-9f5e-0d2c1b8e4a10"


@for_each("check", [*BY_RELEASE, RECORDER_TIMING, ASYNC_ERROR_HANDLING, TIMEOUTS])
def test_without_torch_nothing_that_depends_on_its_release_is_judged(check: DoctorCheck) -> None:
    result = check.look(empty_machine())

    assert (result.status, result.says) == (SKIPPED, "no torch was found to judge by")
    assert "--job PID" in result.fix


@for_each("check", BY_RELEASE)
def test_a_release_without_a_recorder_is_not_blamed_for_it(check: DoctorCheck) -> None:
    result = check.look(with_torch_and("2.1.2", {}))

    assert (result.status, result.says) == (SKIPPED, "torch 2.1 has no flight recorder; the first one is in 2.2")


@for_each(
    ("version", "environ", "status", "says"),
    [
        ("2.6.0", {}, BAD, "off: the default of torch 2.6 is 0"),
        ("2.7.1", {}, BAD, "off: torch 2.7 with nothing set writes dumps without entries"),
        ("2.10.0+cu128", {}, BAD, "off: torch 2.10 with nothing set writes dumps without entries"),
        ("2.11.0", {}, OK, "on: 2000 entries by the default of torch 2.11"),
        ("2.14.0.dev20260801", {}, OK, "on: 2000 entries by the default of torch 2.14"),
        ("2.13.0", {"TORCH_FR_BUFFER_SIZE": "0"}, BAD, "off: TORCH_FR_BUFFER_SIZE is 0"),
        ("2.9.1", {"TORCH_FR_BUFFER_SIZE": "500"}, OK, "on: 500 entries by TORCH_FR_BUFFER_SIZE"),
        ("2.9.1", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "500"}, OK, "on: 500 entries by TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.7.1", {"TORCH_FR_BUFFER_SIZE": "500"}, BAD, "off: torch 2.7 with nothing set writes dumps without entries"),
        (
            "2.9.1",
            {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
            BAD,
            "off: TORCH_FR_BUFFER_SIZE is 0",
        ),
    ],
)
def test_the_recorder_is_on_or_off_as_this_release_reads_it(
    version: str, environ: Mapping[str, str], status: CheckStatus, says: str
) -> None:
    result = RECORDER_ON.look(with_torch_and(version, environ))

    assert (result.status, result.says) == (status, says)


def test_the_fix_names_what_this_release_reads() -> None:
    old, new = (RECORDER_ON.look(with_torch_and(version, {})).fix for version in ("2.7.0", "2.8.0"))

    assert old == "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    assert new == "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"


@for_each(
    ("size", "status"),
    [("2097152", BAD), ("100001", BAD), ("100000", OK), ("20000", OK), ("100", OK), ("99", BAD), ("0", SKIPPED)],
)
def test_a_buffer_is_too_large_too_small_or_right(size: str, status: CheckStatus) -> None:
    assert RECORDER_BUFFER.look(with_torch_and("2.13.0", {"TORCH_FR_BUFFER_SIZE": size})).status is status


def test_a_size_in_bytes_is_told_as_memory() -> None:
    result = RECORDER_BUFFER.look(with_torch_and("2.13.0", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2097152"}))

    assert "2097152 entries, not bytes: about 1638 MiB per rank" in result.says
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE=2000" in result.fix


@for_each(
    ("version", "environ", "status", "word"),
    [
        ("2.5.1", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, BAD, "off by default in torch 2.5"),
        ("2.6.0", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, BAD, "off by default in torch 2.6"),
        ("2.7.0", {}, OK, "by the default of torch 2.7"),
        ("2.5.1", {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, BAD, "torch 2.5 without TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("2.5.1", {"TORCH_NCCL_DUMP_ON_TIMEOUT": "y", "TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}, OK, "leaves a dump"),
        ("2.13.0", {"TORCH_NCCL_DUMP_ON_TIMEOUT": "False"}, BAD, "TORCH_NCCL_DUMP_ON_TIMEOUT says no"),
        ("2.13.0", {"TORCH_FR_DUMP_ON_TIMEOUT": "0"}, OK, "by the default of torch 2.13"),
        ("2.14.0", {"TORCH_FR_DUMP_ON_TIMEOUT": "0"}, BAD, "TORCH_FR_DUMP_ON_TIMEOUT says no"),
        (
            "2.13.0",
            {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"},
            BAD,
            "TORCH_NCCL_TRACE_BUFFER_SIZE=0 disables the part that writes it",
        ),
        ("2.13.0", {"TORCH_NCCL_BLOCKING_WAIT": "1"}, BAD, "no watchdog runs"),
        ("2.13.0", {"TORCH_NCCL_BLOCKING_WAIT": "0"}, OK, "leaves a dump"),
    ],
)
def test_a_timeout_leaves_a_dump_or_not(
    version: str, environ: Mapping[str, str], status: CheckStatus, word: str
) -> None:
    result = RECORDER_DUMP.look(with_torch_and(version, environ))

    assert result.status is status
    assert word in result.says


def with_prefix(prefix: str, *, writable: bool = True, there: bool = True) -> System:
    machine = with_torch_and("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": prefix})
    folder = prefix.rpartition("/")[0]
    return replace(with_facts(machine, {folder: FOLDER if there else None}), may_write=lambda _path: writable)


def test_a_folder_that_can_be_written_is_ok() -> None:
    result = RECORDER_PATH.look(with_prefix("/shared/4711/rank_"))

    assert (result.status, result.says) == (OK, "dumps go to /shared/4711/rank_RANK, by TORCH_FR_DUMP_TEMP_FILE")


@for_each(
    ("machine", "says"),
    [
        (with_prefix("/shared/4711/rank_", there=False), "/shared/4711 does not exist (TORCH_FR_DUMP_TEMP_FILE)"),
        (with_prefix("/shared/4711/rank_", writable=False), "/shared/4711 may not be written"),
        (with_prefix("dumps/rank_"), "not an absolute path"),
    ],
)
def test_a_dump_that_could_not_be_written_is_bad(machine: System, says: str) -> None:
    result = RECORDER_PATH.look(machine)

    assert result.status is BAD
    assert says in result.says


def test_the_folder_of_the_default_need_not_be_there_as_torch_makes_it() -> None:
    machine = replace(with_torch_and("2.13.0", {}), may_write=lambda path: path == "/home/ada")

    assert RECORDER_PATH.look(machine).status is OK
    assert RECORDER_PATH.look(replace(machine, may_write=lambda _path: False)).status is BAD


@for_each(
    ("version", "prefix"),
    [
        ("2.6.0", "/tmp/nccl_trace_rank_"),
        ("2.7.0", "/home/ada/.cache/torch/nccl_trace_rank_"),
        ("2.9.0", "/home/ada/.cache/torch/comm_lib_trace_rank_"),
        ("2.11.0", "/scratch/torch/comm_lib_trace_rank_"),
    ],
)
def test_the_default_moves_with_the_release_and_is_nobodys_own(version: str, prefix: str) -> None:
    result = RECORDER_PATH_UNIQUE.look(with_torch_and(version, {"XDG_CACHE_HOME": "/scratch"}))

    assert result.status is BAD
    assert result.says.startswith(f"{prefix}RANK, torch's default")


@for_each(
    ("prefix", "environ", "status"),
    [
        ("/shared/dumps/rank_", {}, BAD),
        ("/shared/dumps/rank_", {"SLURM_JOB_ID": "81"}, BAD),
        ("/shared/81/rank_", {"SLURM_JOB_ID": "81"}, OK),
        ("/shared/run7/rank_", {"TORCHELASTIC_RUN_ID": "run7"}, OK),
        ("/shared/20260801-120000/rank_", {}, OK),
        ("/shared/81/rank_", {"SLURM_JOB_ID": "81", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "1"}, BAD),
        ("/shared/81/rank_3", {"SLURM_JOB_ID": "81", "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "1", "RANK": "3"}, OK),
    ],
)
def test_a_prefix_is_the_jobs_own_if_it_names_the_job(
    prefix: str, environ: Mapping[str, str], status: CheckStatus
) -> None:
    machine = with_torch_and("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": prefix, **environ})

    assert RECORDER_PATH_UNIQUE.look(machine).status is status


@pytest.mark.parametrize(("root", "status"), [(f"/volume/{UID}", OK), ("/volume", BAD)])
def test_a_folder_that_kubernetes_mounts_per_pod_is_its_own(root: str, status: CheckStatus) -> None:
    machine = with_torch_and("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": "/dumps/rank_", "POD_UID": UID})
    mounted = with_files(machine, {"/proc/self/mountinfo": f"36 35 98:0 {root} /dumps rw shared:1 - nfs4 host:/ rw\n"})

    assert RECORDER_PATH_UNIQUE.look(mounted).status is status


@pytest.mark.parametrize(("modified", "status"), [(500.0, BAD), (1500.0, OK)])
def test_dumps_older_than_the_job_are_another_ones(modified: float, status: CheckStatus) -> None:
    machine = with_torch_and("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": "/shared/4711/rank_"})
    machine = with_files(machine, {"/shared/4711/rank_3": ""})
    machine = with_facts(machine, {"/shared/4711/rank_3": FileFacts(9, 1000, modified, is_folder=False)})
    process = Process(77, 1, 1000, "S", 1000.0, ("python",), {})

    result = RECORDER_PATH_UNIQUE.look(replace(with_processes(machine, [process]), job=77))

    assert result.status is status


@for_each(("kind", "status"), [("tmpfs", BAD), ("overlay", BAD), ("ext4", OK), ("nfs4", OK), ("lustre", OK)])
def test_a_disk_outlives_the_job_or_goes_with_it(kind: str, status: CheckStatus) -> None:
    machine = with_torch_and("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": "/shared/4711/rank_"})
    result = RECORDER_PATH_SURVIVES.look(with_disk(machine, "/shared", Disk("/shared", kind, 9, 9, 0, 0)))

    assert result.status is status
    assert result.details == (("file system", kind),)


def test_a_disk_that_does_not_tell_is_skipped() -> None:
    result = RECORDER_PATH_SURVIVES.look(with_torch_and("2.13.0", {}))

    assert result.status is SKIPPED
    assert "/home/ada/.cache/torch" in result.says


@for_each(
    ("environ", "status"),
    [
        ({}, OK),
        ({"TORCH_NCCL_ENABLE_TIMING": "0"}, OK),
        ({"TORCH_NCCL_ENABLE_TIMING": "1"}, BAD),
        ({"TORCH_NCCL_DESYNC_DEBUG": "true"}, BAD),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, BAD),
        ({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, OK),
    ],
)
def test_timing_is_for_investigations(environ: Mapping[str, str], status: CheckStatus) -> None:
    assert RECORDER_TIMING.look(with_torch_and("2.13.0", environ)).status is status


@for_each(
    ("version", "environ", "status", "word"),
    [
        ("2.13.0", {}, OK, "3 (end without abort) by the default of torch 2.13; torchrun sets 1"),
        ("2.0.1", {}, BAD, "timeouts are not enforced"),
        ("2.1.0", {}, OK, "1 (abort and end)"),
        ("2.13.0", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, OK, "set 3 where ranks hang while they abort"),
        ("2.13.0", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, OK, "3 (end without abort)"),
        ("2.13.0", {"NCCL_ASYNC_ERROR_HANDLING": "0"}, BAD, "NCCL_ASYNC_ERROR_HANDLING is '0'"),
        ("2.13.0", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "4"}, BAD, "no such mode"),
        ("2.13.0", {"NCCL_BLOCKING_WAIT": "1"}, BAD, "no watchdog runs at all"),
        ("2.13.0", {"TORCH_NCCL_ENABLE_MONITORING": "0"}, BAD, "the watchdog itself gets stuck"),
        ("2.13.0", {"TORCH_NCCL_ENABLE_MONITORING": "1"}, OK, "3 (end without abort)"),
    ],
)
def test_what_follows_a_timeout(version: str, environ: Mapping[str, str], status: CheckStatus, word: str) -> None:
    result = ASYNC_ERROR_HANDLING.look(with_torch_and(version, environ))

    assert result.status is status
    assert word in result.says


@for_each(
    ("environ", "status", "word"),
    [
        ({}, OK, "heartbeat 480 s, dump 15 s"),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "15"}, BAD, "before its dump of 15 s is due"),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "16"}, OK, "heartbeat 16 s"),
        ({"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}, BAD, "too short for a dump with stacks"),
        ({"NCCL_IB_TIMEOUT": "22"}, OK, "heartbeat"),
        ({"NCCL_IB_TIMEOUT": "25"}, BAD, "waits 962 s on a dead link"),
        ({"NCCL_IB_TIMEOUT": "25", "NCCL_IB_RETRY_CNT": "3"}, OK, "heartbeat"),
        ({"NCCL_IB_TIMEOUT": "0"}, BAD, "waits forever on a dead link"),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}, BAD, "kill ranks that still write"),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "90"}, OK, "heartbeat"),
    ],
)
def test_timeouts_must_leave_time_for_each_other(environ: Mapping[str, str], status: CheckStatus, word: str) -> None:
    result = TIMEOUTS.look(with_torch_and("2.13.0", environ))

    assert result.status is status
    assert word in result.says


@for_each(
    ("environ", "status", "says"),
    [
        ({}, SKIPPED, "none of torch's or NCCL's switches is set"),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "enabled"}, BAD, "'enabled' is neither yes nor no"),
        ({"TORCH_FR_BUFFER_SIZE": "2k"}, BAD, "'2k' is not a whole number"),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": '"2000"'}, BAD, "is not a whole number"),
        ({"TORCH_DISTRIBUTED_DEBUG": "VERBOSE"}, BAD, "none of OFF, INFO, DETAIL"),
        ({"NCCL_DEBUG": "info"}, OK, "1 are set"),
        ({"NCCL_IB_HCA": "=mlx5_0"}, SKIPPED, "none of torch's or NCCL's switches is set"),
    ],
)
def test_values_that_torch_would_refuse(environ: Mapping[str, str], status: CheckStatus, says: str) -> None:
    result = VARIABLE_VALUES.look(with_environ(empty_machine(), environ))

    assert result.status is status
    assert says in result.says


@for_each(
    ("name", "says"),
    [
        ("NCCL_TIMEOUT", "does not exist"),
        ("TORCH_NCCL_FLIGHT_RECORDER_ENABLED", "nothing reads it"),
        ("P2P_LEVEL", "does not exist"),
        ("TORCH_NCCL_TRACE_BUFER_SIZE", "did you mean TORCH_NCCL_TRACE_BUFFER_SIZE?"),
        ("NCCL_SOCKET_IF_NAME", "did you mean NCCL_SOCKET_IFNAME?"),
        ("NCCL_DEBGU", "did you mean NCCL_DEBUG?"),
        ("TORCH_FR_NO_SUCH_THING_AT_ALL", "no release of torch up to 2.14 reads it"),
    ],
)
def test_a_variable_that_nobody_reads_is_named(name: str, says: str) -> None:
    result = UNKNOWN_VARIABLES.look(with_environ(empty_machine(), {name: "1"}))

    assert result.status is BAD
    assert result.says.startswith(f"{name}: ")
    assert says in result.says
    assert result.fix.startswith(f"{name}: ")


@for_each(
    "name",
    [
        "NCCL_DEBUG",
        "NCCL_IB_QPS_PER_CONNECTION",  # of NCCL, without an entry in the knowledge base
        "NCCL_FASTRAK_CTRL_DEV",  # of a cloud's plug-in
        "TORCH_NCCL_ABORT_IN_DESTROY_PG",  # of older releases
        "NCCL_ASYNC_ERROR_HANDLING",
    ],
)
def test_a_variable_that_somebody_may_read_is_left_alone(name: str) -> None:
    assert UNKNOWN_VARIABLES.look(with_environ(empty_machine(), {name: "1"})).status is OK


@for_each(
    ("version", "environ", "status"),
    [
        ("2.7.0", {"TORCH_FR_BUFFER_SIZE": "2000"}, BAD),
        ("2.8.0", {"TORCH_FR_BUFFER_SIZE": "2000"}, OK),
        ("2.7.0", {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, OK),
        ("2.9.0", {"TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "1"}, BAD),
    ],
)
def test_a_name_newer_than_this_torch_is_not_read(
    version: str, environ: Mapping[str, str], status: CheckStatus
) -> None:
    assert UNKNOWN_VARIABLES.look(with_torch_and(version, environ)).status is status


def test_without_any_variable_there_is_nothing_to_judge() -> None:
    assert UNKNOWN_VARIABLES.look(empty_machine()).status is SKIPPED
