"""Checks of what the kernel said, from lines as kernels and drivers print them."""

from doctor.machine_samples import UPTIME, machine, text_of, with_kernel_log
from forkpoint.doctor.checks.kernel import ADAPTER_MESSAGES, KERNEL_STALLS, LOOK_BACK_S, MACHINE_CHECKS, OOM_KILLS, XIDS
from forkpoint.doctor.checks.links import PCIE_ERRORS
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import Ran, System, Unanswered, empty_machine, with_files, with_outputs
from looping import for_each

H100 = machine("pci_h100.json")
LOST = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REFUSED = Ran(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")
KERNEL_CHECKS = [ADAPTER_MESSAGES, KERNEL_STALLS, MACHINE_CHECKS, OOM_KILLS, XIDS]
BAD = [
    (XIDS, LOST),
    (XIDS, "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."),
    (XIDS, "NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s of waiting for RPC response!"),
    (XIDS, "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"),
    (XIDS, "NVRM: Xid (PCI:0000:01:00): 999, something new"),
    (XIDS, "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 61 LTSSM Fault Up"),
    (XIDS, "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"),
    (PCIE_ERRORS, "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"),
    (PCIE_ERRORS, "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer"),
    (PCIE_ERRORS, "pcieport 0000:3a:00.0: AER: device recovery failed"),
    (KERNEL_STALLS, "INFO: task jfsmount:136986 blocked for more than 120 seconds."),
    (KERNEL_STALLS, "watchdog: BUG: soft lockup - CPU#0 stuck for 25s! [pt_data_pin:2273422]"),
    (KERNEL_STALLS, "nfs: server 7.247.192.16 not responding, timed out"),
    (MACHINE_CHECKS, "mce: [Hardware Error]: Machine check events logged"),
    (OOM_KILLS, "Out of memory: Killed process 31631 (python3) total-vm:123456kB, anon-rss:98765kB"),
    (
        ADAPTER_MESSAGES,
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot",
    ),
    (ADAPTER_MESSAGES, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
]
NEAR = [
    (XIDS, "NVRM: Xid (PCI:0000:38:00): 13, pid=9, name=python, Graphics SM Warp Exception: Out Of Range Address"),
    (
        XIDS,
        "NVRM: Xid (PCI:0000:08:00): 31, Ch 0000003b, intr 10000000. MMU Fault: ENGINE GRAPHICS HUBCLIENT_SCC faulted",
    ),
    (XIDS, "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001"),
    (
        XIDS,
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
    ),
    (XIDS, "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)"),
    (PCIE_ERRORS, "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0"),
    (PCIE_ERRORS, "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)"),
    (MACHINE_CHECKS, "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0"),
    (OOM_KILLS, "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
    (ADAPTER_MESSAGES, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"),
]


@for_each(("check", "line"), BAD, ids=[line[:60] for _, line in BAD])
def test_such_a_line_is_bad(check: object, line: str) -> None:
    result = check.look(with_kernel_log(H100, line))

    assert result.status is CheckStatus.BAD
    assert result.fix


@for_each(("check", "line"), NEAR, ids=[line[:60] for _, line in NEAR])
def test_such_a_line_does_not_speak_against_the_node(check: object, line: str) -> None:
    assert check.look(with_kernel_log(H100, line)).status is CheckStatus.OK


@for_each(("check", "line"), BAD, ids=[line[:60] for _, line in BAD])
def test_a_line_older_than_a_day_is_not_judged(check: object, line: str) -> None:
    old = with_kernel_log(H100, line, seconds_ago=30_000)
    today = with_files(old, {"/proc/uptime": f"{37_046.54 - 30_000 + LOOK_BACK_S - 1} 0\n"})
    later = with_files(old, {"/proc/uptime": f"{37_046.54 - 30_000 + LOOK_BACK_S + 2} 0\n"})

    assert check.look(today).status is CheckStatus.BAD
    assert check.look(later).status is CheckStatus.OK


@for_each("check", KERNEL_CHECKS, ids=lambda check: check.name)
def test_a_sound_machine_is_ok(check: DoctorCheck) -> None:
    assert check.look(with_kernel_log(H100)).status is CheckStatus.OK


@for_each("check", KERNEL_CHECKS, ids=lambda check: check.name)
@for_each("outputs", [{}, {"dmesg": REFUSED}, {"dmesg": Ran(0, ""), "journalctl": Ran(0, "")}])
def test_a_log_that_cannot_be_read_or_is_empty_proves_nothing(
    check: DoctorCheck, outputs: dict[str, Ran | Unanswered]
) -> None:
    result = check.look(with_outputs(H100, outputs))

    assert result.status is CheckStatus.SKIPPED
    assert result.fix
    assert "root" in result.fix


def test_why_the_log_cannot_be_read_is_told_of_every_program_that_was_asked() -> None:
    result = XIDS.look(with_outputs(H100, {"dmesg": REFUSED}))

    assert "dmesg: read kernel buffer failed: Operation not permitted" in result.says
    assert "journalctl is not installed" in result.says


def test_the_journal_is_read_where_dmesg_is_refused() -> None:
    journal = f"[36990.123456] node-7 kernel: {LOST}\n"
    system = with_outputs(with_files(H100, {"/proc/uptime": UPTIME}), {"dmesg": REFUSED, "journalctl": Ran(0, journal)})

    assert XIDS.look(system).status is CheckStatus.BAD


def virtual(*lines: str) -> System:
    return with_kernel_log(machine("pci_vm.json"), *lines)


@for_each("check", [XIDS, ADAPTER_MESSAGES, PCIE_ERRORS])
def test_a_machine_without_the_hardware_is_skipped_and_not_ok(check: object) -> None:
    assert check.look(virtual()).status is CheckStatus.SKIPPED


def test_an_xid_counts_where_sysfs_shows_no_gpu() -> None:
    """A container may hide the bus and still show the kernel's log."""
    assert XIDS.look(virtual(LOST)).status is CheckStatus.BAD


def test_an_xid_says_what_it_means_and_what_to_do() -> None:
    result = XIDS.look(with_kernel_log(H100, LOST))

    assert result.says == "Xid 79 on 0000:05:00.0 (the GPU has fallen off the bus)"
    assert result.fix
    assert result.fix.endswith("`forkpoint explain xid79`")


def test_of_one_incident_the_first_event_is_told_and_what_follows_is_not() -> None:
    follow = (
        "NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    )

    result = XIDS.look(with_kernel_log(H100, LOST, follow))

    assert result.says == "Xid 79 on 0000:05:00.0 (the GPU has fallen off the bus)"


def test_an_application_error_is_named_though_it_is_ok() -> None:
    line = "NVRM: Xid (PCI:0000:38:00): 31, Ch 0000003b, intr 10000000. MMU Fault"

    assert "Xid 31 on 0000:38:00.0" in XIDS.look(with_kernel_log(H100, line)).says


def test_a_file_server_that_answers_again_is_ok() -> None:
    silent, back = "nfs: server 10.0.0.9 not responding, still trying", "nfs: server 10.0.0.9 OK"

    assert KERNEL_STALLS.look(with_kernel_log(H100, silent, back)).status is CheckStatus.OK
    assert KERNEL_STALLS.look(with_kernel_log(H100, back, silent)).status is CheckStatus.BAD


def test_a_link_is_judged_by_its_last_state() -> None:
    down = "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"
    up = "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"
    another = "mlx5_core 0000:5c:00.0 mlx5_2: Port: 1 Link ACTIVE"

    assert ADAPTER_MESSAGES.look(with_kernel_log(H100, down, up)).status is CheckStatus.OK
    assert ADAPTER_MESSAGES.look(with_kernel_log(H100, down, another)).status is CheckStatus.BAD


def test_many_messages_are_cut_short_and_counted() -> None:
    lines = [f"INFO: task python:{pid} blocked for more than 120 seconds." for pid in range(100, 110)]

    result = KERNEL_STALLS.look(with_kernel_log(H100, *lines))

    assert "python:109" in result.says
    assert result.says.endswith("(and 7 more)")


def test_counters_of_pcie_errors_are_judged_by_what_is_added() -> None:
    file = "/sys/bus/pci/devices/0000:18:00.0/aer_dev_nonfatal"
    old = "Undefined 0\nTLP 12\nTOTAL_ERR_NONFATAL 12\n"
    still = with_kernel_log(machine("pci_h100.json", texts={file: old}, later={file: old}))
    moving = with_kernel_log(machine("pci_h100.json", texts={file: old}, later={file: old.replace("12", "13")}))

    assert PCIE_ERRORS.look(still).status is CheckStatus.OK
    result = PCIE_ERRORS.look(moving)
    assert (result.status, result.says) == (CheckStatus.BAD, "GPU 0000:18:00.0: 1 non-fatal errors in 1 s")
    assert ("count GPU 0000:18:00.0 non-fatal", "13") in result.details


def test_pcie_counters_count_where_the_log_cannot_be_read() -> None:
    result = PCIE_ERRORS.look(H100)

    assert result.status is CheckStatus.OK
    assert "cannot be read" in result.says
    assert PCIE_ERRORS.look(empty_machine()).status is CheckStatus.SKIPPED


def test_the_recorded_log_of_a_sound_machine_has_lines() -> None:
    assert len(text_of("dmesg_vm.txt").splitlines()) > 10
