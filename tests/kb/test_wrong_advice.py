"""What widely shared guides get wrong is not repeated here, and where an entry touches it the right thing is said."""

import re

import pytest

from forkpoint.knowledge.base import Entry, EntryKind, entries, find
from looping import for_each

ALL = [entry for kind in EntryKind for entry in entries(kind)]


def the(query: str) -> Entry:
    return find(query)[0]


def claims(entry: Entry) -> str:
    """All that an entry asserts or advises; `not_means` is where errors are named."""
    return "\n".join((entry.title, entry.means, *entry.do, *dict(entry.facts).values()))


# Commands and phrases that no entry may claim or advise, each with the reason.
NEVER = {
    r"(export +)?NCCL_TIMEOUT ?=": "no such variable",
    r"pkill|killall": "matches processes of other jobs",
    r"kill -(SIG)?(USR1|10)\b": "ends a process that has not registered the signal",
    r"rm (-\w+ )?/dev/shm|rm .*nccl-": "breaks live jobs of any user",
    r"faulthandler\.enable\(\).{0,40}(timeout|hang)": "it writes on fatal signals only",
    r"torch\.cuda\.check_error": "takes a return code, not a device",
    r"2097152|2,097,152": "entries, not bytes",
    r"(?i)size in bytes|bytes of (the )?ring": "the ring buffer counts entries",
    r"nccl_trace_\S*\.json": "dumps are pickles without extension",
    r"(?i)NCCL's flight recorder": "the recorder is PyTorch's",
    r"nvidia-smi -e 1": "ECC is on by default, and cannot come before the Xid that reports it",
    r"(?i)replace (the |this )?(gpu|hardware|node)": "a workflow decides, not one error",
    r"(?i)any counter (above|>)": "judge what counters gain",
    r"ibping": "software MADs, and its options are widely misquoted",
    r"perfquery -x \S* ?-d|perfquery.* -d ": "-d is debug; the device is -C",
    r"--trace=\S*nccl": "not a value that could be confirmed",
    r"rdzv_backend=etcd": "the legacy backend",
    r"\\ +#": "a comment after the backslash breaks the command",
    r"(?<!NCCL_)\bP2P_LEVEL ?=": "the name lacks its prefix",
    r"P2P_LEVEL=NVL": "restricts P2P, enables nothing",
    r"(?i)300 ?MB per GPU": "depends on channels, peers and communicators",
    r"(?i)cast .*(fp32|float32)": "bf16 has been an NCCL type since 2.10",
    r"ps aux": "counts agents and loader workers as ranks",
    r"(?i)hangs? indefinitely": "store waits end with an error",
    r"(?i)almost all .*(desync|timeouts are)": "one fleet's view without numbers",
    r"(?i)preserved even if|survives? a kill": "only a living process writes a dump",
    r"tools/flight_recorder": "moved to torch/distributed/flight_recorder",
    r"(?i)DDP('s)? (has a |built-in )*timeout": "it belongs to the process group",
}


@for_each(("wrong", "reason"), NEVER.items(), ids=NEVER.values())
def test_no_entry_claims_or_advises_it(wrong: str, reason: str) -> None:
    assert [entry.query for entry in ALL if re.search(wrong, claims(entry))] == []


def test_raising_the_timeout_is_advised_only_for_stragglers() -> None:
    raising = re.compile(r"(?i)\b(raise|increase|longer|higher)\b[^.]{0,40}\btimeout|set that group's timeout")

    advised = {entry.query for entry in ALL for step in entry.do if raising.search(step)}

    assert advised <= {"straggler"}


def test_nccl_timeout_does_not_exist_and_the_argument_does() -> None:
    entry = the("NCCL_TIMEOUT")

    assert entry.title == "does not exist"
    assert "timeout=" in entry.do[0]
    assert "10 min" in dict(entry.facts)["what exists"]
    assert "30 min before" in dict(entry.facts)["what exists"]


def test_a_watchdog_timeout_is_no_result_of_nccl() -> None:
    assert "Not an error of NCCL" in the("watchdog-timeout").not_means
    assert "timeout" in the("ncclInternalError").not_means
    assert "nothing to do with PyTorch's watchdog" in the("ncclTimeout").not_means


def test_xid_43_is_not_nvlink_and_74_is() -> None:
    assert "NVLink" not in claims(the("43"))
    assert "Not an NVLink error" in the("43").not_means
    assert dict(the("43").facts)["likelier origin"].startswith("application")
    assert "NVLink" in the("74").title
    assert all("NVLink" in the(str(number)).title for number in range(144, 151))


def test_xid_79_is_a_lost_gpu_and_not_a_driver_to_update() -> None:
    entry = the("79")

    assert "fallen off the bus" in entry.title
    assert not re.search(r"(?i)update|upgrade|install", "\n".join(entry.do))
    assert "Not a hung kernel" in entry.not_means
    assert dict(entry.facts)["NVIDIA's action"].startswith("RESTART_BM")


def test_xid_94_is_a_contained_memory_error_and_not_about_docker() -> None:
    assert "memory error" in the("94").title
    assert not re.search(r"(?i)docker|container\b", claims(the("94")))
    assert "Docker" in the("94").not_means


def test_xid_48_leads_to_the_xids_beside_it_before_anything_is_exchanged() -> None:
    assert all(number in the("48").do[0] for number in ("63", "64", "94", "95"))


@for_each("number", ["13", "31", "43"])
def test_xids_of_the_application_are_not_called_hardware(number: str) -> None:
    assert dict(the(number).facts)["likelier origin"].startswith("application")


def test_xid_119_is_reset_and_looked_for_in_software() -> None:
    assert dict(the("119").facts)["NVIDIA's action"] == "RESET_GPU, then INVESTIGATE_SW"


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_recorder_is_measured_in_entries_under_both_names(name: str) -> None:
    entry = the(name)

    assert dict(entry.facts)["unit"] == "entries"
    assert "Not bytes" in entry.not_means
    assert "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000" in entry.do[0]
    assert "2.8" in dict(entry.facts)["spelling"]
    assert "2.11" in dict(entry.facts)["default"]


def test_dumps_are_pickles_whose_place_depends_on_the_version() -> None:
    entry = the("TORCH_FR_DUMP_TEMP_FILE")
    default = dict(entry.facts)["default"]

    assert "pickle" in entry.means
    assert re.search(r"/tmp/\S+ up to 2\.5", default)
    assert "comm_lib_trace_rank_ from 2.9" in default


def test_the_trap_of_empty_dumps_is_named() -> None:
    assert "2.7 to 2.10" in the("TORCH_FR_BUFFER_SIZE").means
    assert "2.7 to 2.10" in the("fr-disabled").means


def test_gpu_memory_is_cuda_s_and_not_a_system_error() -> None:
    assert "GPU memory" in the("ncclUnhandledCudaError").means
    assert "lack of GPU memory is ncclUnhandledCudaError" in the("ncclSystemError").not_means


def test_sizes_that_differ_between_ranks_are_not_an_invalid_argument() -> None:
    entry = the("ncclInvalidArgument")

    assert not re.search(r"(?i)contiguous|differ", entry.means)
    assert "differ between ranks are not found" in entry.not_means
    assert "contiguous" in entry.not_means
    assert "DETAIL" in "\n".join(entry.do)


def test_nccl_debug_info_does_not_show_what_is_stuck() -> None:
    assert "does not show what is stuck" in the("NCCL_DEBUG").not_means
    assert "queued" in the("NCCL_DEBUG_SUBSYS").not_means


def test_launch_blocking_is_not_for_hangs() -> None:
    assert "no use for hangs" in the("CUDA_LAUNCH_BLOCKING").not_means


def test_blocking_wait_and_the_modes_of_error_handling_are_told_right() -> None:
    assert "No watchdog thread" in the("TORCH_NCCL_BLOCKING_WAIT").means
    assert "torchrun exports 1" in dict(the("TORCH_NCCL_ASYNC_ERROR_HANDLING").facts)["default"]


def test_torchrun_s_root_cause_is_not_taken_for_one() -> None:
    assert "Usually not the root" in the("elastic-root").not_means


def test_group_rank_and_global_rank_are_told_apart() -> None:
    assert "`[rankN]:` is the global one" in the("watchdog-timeout").not_means


def test_reported_errors_are_not_called_silent() -> None:
    assert "not silent" in the("silent-corruption").not_means


def test_shared_memory_is_not_cleared_blindly() -> None:
    assert "owners" in "\n".join(the("nccl-shm").do)


def test_nvlink_counters_are_judged_by_what_they_gain() -> None:
    assert "twice" in the("74").do[0]
    assert "twice" in the("transport").do[0]


def test_signals_and_faulthandler_are_told_right() -> None:
    assert "only on fatal signals" in the("faulthandler").not_means
    assert "ends that process" in the("faulthandler").not_means
