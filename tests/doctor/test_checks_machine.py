"""What holds for every check of hardware and host."""

import re

from doctor.machine_samples import machine, with_gpus, with_kernel_log
from forkpoint.doctor import examine
from forkpoint.doctor.broken import examine_injected
from forkpoint.doctor.checks import CHECKS_OF_MACHINE
from forkpoint.doctor.live import live_system
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import empty_machine
from looping import for_each

BARE = with_kernel_log(machine("pci_vm.json", "network_vm.json"))
"""A virtual machine without GPU and without InfiniBand."""
HARDWARE = ("gpu-", "xids", "pcie-", "infiniband", "adapter-messages")
FORBIDDEN = re.compile(r"\brm -|\brm /|pkill|kill -|killall|NCCL_TIMEOUT|nvidia-smi -e 1", re.IGNORECASE)
"""Advice that breaks other people's jobs, or that does nothing."""


@for_each("check", CHECKS_OF_MACHINE, ids=lambda check: check.name)
@for_each("base", [empty_machine(), BARE, with_gpus(BARE)], ids=["empty", "virtual", "with GPUs"])
def test_every_check_can_fail(check: DoctorCheck, base: object) -> None:
    report = examine_injected(base, check)

    assert [judged.result.status for judged in report.results] == [CheckStatus.BAD]
    assert report.bad[0].result.fix


@for_each("check", CHECKS_OF_MACHINE, ids=lambda check: check.name)
def test_no_fix_breaks_other_jobs(check: DoctorCheck) -> None:
    fix = examine_injected(BARE, check).bad[0].result.fix

    assert fix
    assert not FORBIDDEN.search(fix)


def test_nothing_is_ok_on_a_machine_of_which_nothing_is_known() -> None:
    report = examine(empty_machine(), CHECKS_OF_MACHINE)

    assert report.failures == ()
    assert {judged.result.status for judged in report.results} == {CheckStatus.SKIPPED}


def test_no_check_of_hardware_that_is_not_there_says_ok() -> None:
    report = examine(BARE, CHECKS_OF_MACHINE)
    asked = [judged for judged in report.results if judged.check.startswith(HARDWARE)]

    assert len(asked) == 13
    assert {judged.result.status for judged in asked} == {CheckStatus.SKIPPED}


def test_this_machine_can_be_looked_at() -> None:
    report = examine(live_system(), CHECKS_OF_MACHINE)

    assert report.failures == ()
    assert [judged.check for judged in report.results] == [check.name for check in CHECKS_OF_MACHINE]
    assert all(judged.result.says for judged in report.results)


def test_names_are_unique_and_every_check_says_why() -> None:
    names = [check.name for check in CHECKS_OF_MACHINE]

    assert len(set(names)) == len(names)
    assert all(check.why.endswith(".") and check.title for check in CHECKS_OF_MACHINE)
