"""A sound H200 as it was recorded, and the same with one value changed."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from doctor.machine_samples import UPTIME, machine, text_of
from forkpoint.doctor.check import Check, Status
from forkpoint.doctor.checks import (
    adapter_messages,
    gpu_ecc,
    gpu_memory_rows,
    gpu_nvlink,
    gpu_persistence,
    gpu_present,
    gpu_recovery,
    gpu_slowdown,
    gpu_temperature,
    infiniband,
    pcie_link,
    xids,
)
from forkpoint.doctor.nvml import parse_nvml
from forkpoint.doctor.overlay import with_files, with_outputs
from forkpoint.doctor.system import Ran, System
from looping import for_each

GPU = "/sys/bus/pci/devices/0000:00:06.0"
OK_THERE = [
    module.CHECK
    for module in (
        gpu_ecc,
        gpu_memory_rows,
        gpu_persistence,
        gpu_present,
        gpu_recovery,
        gpu_slowdown,
        gpu_temperature,
        pcie_link,
        xids,
    )
]


def h200(texts: Mapping[str, str] | None = None, said: str = "", **changed: object) -> System:
    """`changed`: values in the document of the NVML reader."""
    document = json.loads(text_of("nvml_h200.json"))
    document["gpus"][0] |= changed
    system = machine("pci_h200.json", texts=texts)
    told = with_outputs(system, {"dmesg": Ran(0, text_of("dmesg_h200.txt") + said)})
    return replace(with_files(told, {"/proc/uptime": UPTIME}), nvml=lambda: parse_nvml(document))


@for_each("check", OK_THERE, ids=lambda check: check.name)
def test_the_recorded_machine_is_sound(check: Check) -> None:
    result = check.look(h200())

    assert (result.status, result.fix) == (Status.OK, None), result.says


@for_each("check", [gpu_nvlink.CHECK, infiniband.CHECK, adapter_messages.CHECK], ids=lambda check: check.name)
def test_what_the_recorded_machine_has_not_is_skipped(check: Check) -> None:
    result = check.look(h200())

    assert result.status is Status.SKIPPED
    assert result.says


@for_each(
    ("module", "changed", "says"),
    [
        (gpu_ecc, {"uncorrected": 2}, "2 uncorrected"),
        (gpu_memory_rows, {"remap_pending": 1}, "next reset"),
        (gpu_memory_rows, {"remap_failed": 1}, "failed on GPU 0"),
        (gpu_persistence, {"persistence": 0}, "off on GPU 0"),
        (gpu_recovery, {"recovery_action": 1}, "GPU 0"),
        (gpu_slowdown, {"reasons": 0x40, "later": {"reasons": 0x40, "links": []}}, "thermal slowdown"),
        (gpu_temperature, {"margin": 0}, "at 39 C"),
        (gpu_present, {"lost": "GPU is lost"}, "GPU is lost"),
        (gpu_nvlink, {"links": [{"active": 1, "replay": 0, "recovery": 0, "crc": 0}], "later": {"reasons": 1, "links": [{"active": 1, "replay": 3, "recovery": 0, "crc": 0}]}}, "link 0"),
    ],
)  # fmt: skip
def test_one_value_of_nvml_makes_its_own_check_bad_and_no_other(
    module: object, changed: dict[str, object], says: str
) -> None:
    system = h200(**changed)

    result = module.CHECK.look(system)

    assert result.status is Status.BAD
    assert says in result.says
    assert "0000:00:06.0" in result.says or "GPU 0" in result.says
    others = [check.name for check in OK_THERE if check != module.CHECK and check.look(system).status is Status.BAD]
    assert others == []


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ({f"{GPU}/current_link_width": "8\n"}, Status.BAD),
        ({f"{GPU}/current_link_speed": "2.5 GT/s PCIe\n"}, Status.OK),
    ],
    ids=["half as wide", "slow while it has nothing to do"],
)
def test_a_narrow_link_is_bad_and_a_slow_one_of_an_idle_gpu_is_not(texts: dict[str, str], status: Status) -> None:
    assert pcie_link.CHECK.look(h200(texts)).status is status


def test_a_slow_link_of_a_gpu_at_work_is_bad() -> None:
    working = {"reasons": 0, "later": {"reasons": 0, "links": []}}

    assert pcie_link.CHECK.look(h200({f"{GPU}/current_link_speed": "2.5 GT/s PCIe\n"}, **working)).status is Status.BAD
    assert pcie_link.CHECK.look(h200(**working)).status is Status.OK


def test_the_drivers_own_talk_is_no_xid_and_an_xid_behind_it_is() -> None:
    """It speaks of an interrupt that it clears, and of a deprecated mode."""
    xid = "[37000.000000] NVRM: Xid (PCI:0000:00:06): 79, pid=4711, name=python, GPU has fallen off the bus.\n"

    assert "FBHUB Interrupt detected" in text_of("dmesg_h200.txt")
    assert xids.CHECK.look(h200()).status is Status.OK
    assert xids.CHECK.look(h200(said=xid)).status is Status.BAD
