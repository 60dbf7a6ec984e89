"""A sound H200 as it was recorded, and the same with one value changed."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from doctor.machine_samples import UPTIME, machine, text_of
from forkpoint.doctor.checks.gpu import (
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_PERSISTENCE,
    GPU_PRESENT,
    GPU_RECOVERY,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
)
from forkpoint.doctor.checks.kernel import ADAPTER_MESSAGES, XIDS
from forkpoint.doctor.checks.links import GPU_NVLINK, PCIE_LINK
from forkpoint.doctor.checks.network import INFINIBAND
from forkpoint.doctor.nvml import parse_nvml
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import Ran, System, with_files, with_outputs
from looping import for_each

GPU = "/sys/bus/pci/devices/0000:00:06.0"
OK_THERE = [
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_PERSISTENCE,
    GPU_PRESENT,
    GPU_RECOVERY,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
    PCIE_LINK,
    XIDS,
]


def h200(texts: Mapping[str, str] | None = None, said: str = "", **changed: object) -> System:
    """`changed`: values in the document of the NVML reader."""
    document = json.loads(text_of("nvml_h200.json"))
    document["gpus"][0] |= changed
    system = machine("pci_h200.json", texts=texts)
    told = with_outputs(system, {"dmesg": Ran(0, text_of("dmesg_h200.txt") + said)})
    return replace(with_files(told, {"/proc/uptime": UPTIME}), nvml=lambda: parse_nvml(document))


@for_each("check", OK_THERE, ids=lambda check: check.name)
def test_the_recorded_machine_is_sound(check: DoctorCheck) -> None:
    result = check.look(h200())

    assert (result.status, result.fix) == (CheckStatus.OK, None), result.says


@for_each("check", [GPU_NVLINK, INFINIBAND, ADAPTER_MESSAGES], ids=lambda check: check.name)
def test_what_the_recorded_machine_has_not_is_skipped(check: DoctorCheck) -> None:
    result = check.look(h200())

    assert result.status is CheckStatus.SKIPPED
    assert result.says


@for_each(
    ("check", "changed", "says"),
    [
        (GPU_ECC, {"uncorrected": 2}, "2 uncorrected"),
        (GPU_MEMORY_ROWS, {"remap_pending": 1}, "next reset"),
        (GPU_MEMORY_ROWS, {"remap_failed": 1}, "failed on GPU 0"),
        (GPU_PERSISTENCE, {"persistence": 0}, "off on GPU 0"),
        (GPU_RECOVERY, {"recovery_action": 1}, "GPU 0"),
        (GPU_SLOWDOWN, {"reasons": 0x40, "later": {"reasons": 0x40, "links": []}}, "thermal slowdown"),
        (GPU_TEMPERATURE, {"margin": 0}, "at 39 C"),
        (GPU_PRESENT, {"lost": "GPU is lost"}, "GPU is lost"),
        (GPU_NVLINK, {"links": [{"active": 1, "replay": 0, "recovery": 0, "crc": 0}], "later": {"reasons": 1, "links": [{"active": 1, "replay": 3, "recovery": 0, "crc": 0}]}}, "link 0"),
    ],
)  # fmt: skip
def test_one_value_of_nvml_makes_its_own_check_bad_and_no_other(
    check: DoctorCheck, changed: dict[str, object], says: str
) -> None:
    system = h200(**changed)

    result = check.look(system)

    assert result.status is CheckStatus.BAD
    assert says in result.says
    assert "0000:00:06.0" in result.says or "GPU 0" in result.says
    others = [other.name for other in OK_THERE if other != check and other.look(system).status is CheckStatus.BAD]
    assert others == []


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ({f"{GPU}/current_link_width": "8\n"}, CheckStatus.BAD),
        ({f"{GPU}/current_link_speed": "2.5 GT/s PCIe\n"}, CheckStatus.OK),
    ],
    ids=["half as wide", "slow while it has nothing to do"],
)
def test_a_narrow_link_is_bad_and_a_slow_one_of_an_idle_gpu_is_not(texts: dict[str, str], status: CheckStatus) -> None:
    assert PCIE_LINK.look(h200(texts)).status is status


def test_a_slow_link_of_a_gpu_at_work_is_bad() -> None:
    working = {"reasons": 0, "later": {"reasons": 0, "links": []}}

    assert PCIE_LINK.look(h200({f"{GPU}/current_link_speed": "2.5 GT/s PCIe\n"}, **working)).status is CheckStatus.BAD
    assert PCIE_LINK.look(h200(**working)).status is CheckStatus.OK


def test_the_drivers_own_talk_is_no_xid_and_an_xid_behind_it_is() -> None:
    """It speaks of an interrupt that it clears, and of a deprecated mode."""
    xid = "[37000.000000] NVRM: Xid (PCI:0000:00:06): 79, pid=4711, name=python, GPU has fallen off the bus.\n"

    assert "FBHUB Interrupt detected" in text_of("dmesg_h200.txt")
    assert XIDS.look(h200()).status is CheckStatus.OK
    assert XIDS.look(h200(said=xid)).status is CheckStatus.BAD
