"""Checks of GPUs: what NVML told, and the verdict on it."""

from dataclasses import replace

from doctor.machine_samples import gpu_of, machine, with_gpus, without_nvml
from forkpoint.doctor.checks.gpu import (
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_PERSISTENCE,
    GPU_PRESENT,
    GPU_RECOVERY,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
)
from forkpoint.doctor.checks.links import GPU_NVLINK
from forkpoint.doctor.nvml import INSTALL, DriverStuck, LinkErrors, NvLink
from forkpoint.doctor.report import CheckStatus, DoctorCheck
from forkpoint.doctor.system import Unanswered, empty_machine, with_environ
from looping import for_each

GPU_CHECKS = [
    GPU_ECC,
    GPU_MEMORY_ROWS,
    GPU_NVLINK,
    GPU_PERSISTENCE,
    GPU_PRESENT,
    GPU_RECOVERY,
    GPU_SLOWDOWN,
    GPU_TEMPERATURE,
]
UNTOLD = {
    "ecc": None,
    "uncorrected": None,
    "remap_failed": None,
    "remap_pending": None,
    "pages_pending": None,
    "links": (),
    "persistence": None,
    "recovery_action": None,
    "reasons": None,
    "temperature": None,
    "hottest": None,
    "margin": None,
}


def link(number: int = 0, **added: int) -> NvLink:
    """A link of some age, and what was added within the second."""
    before = LinkErrors(replay=5, recovery=2, crc=4000)
    after = {name: getattr(before, name) + more for name, more in added.items()}
    return NvLink(number, active=True, before=before, after=replace(before, **after))


@for_each("check", GPU_CHECKS, ids=lambda check: check.name)
def test_sound_gpus_are_ok(check: DoctorCheck) -> None:
    result = check.look(with_gpus(empty_machine()))

    assert result.status is CheckStatus.OK
    assert result.fix is None


@for_each("check", GPU_CHECKS, ids=lambda check: check.name)
def test_a_machine_without_gpus_is_skipped_and_nobody_is_told_to_install_a_library(check: DoctorCheck) -> None:
    result = check.look(machine("pci_vm.json"))

    assert result.status is CheckStatus.SKIPPED
    assert "no NVIDIA GPU" in result.says
    assert result.fix is None


@for_each("check", GPU_CHECKS, ids=lambda check: check.name)
def test_gpus_without_the_library_are_skipped_with_the_line_that_installs_it(check: DoctorCheck) -> None:
    missing = Unanswered("nvidia-ml-py is not installed", INSTALL)

    result = check.look(without_nvml(machine("pci_h100.json"), missing))

    assert (result.status, result.says, result.fix) == (CheckStatus.SKIPPED, missing.why, INSTALL)


@for_each("check", [check for check in GPU_CHECKS if check.name != "gpu-present"], ids=lambda c: c.name)
def test_what_neither_gpu_nor_driver_tells_is_skipped(check: DoctorCheck) -> None:
    assert check.look(with_gpus(empty_machine(), UNTOLD, UNTOLD)).status is CheckStatus.SKIPPED


@for_each(
    ("check", "change", "says"),
    [
        (GPU_ECC, {"uncorrected": 1}, "GPU 0 (0000:18:00.0): 1 uncorrected"),
        (GPU_MEMORY_ROWS, {"remap_failed": True}, "failed on GPU 0"),
        (GPU_MEMORY_ROWS, {"remap_pending": True}, "next reset"),
        (GPU_MEMORY_ROWS, {"remap_failed": None, "pages_pending": True}, "next reset"),
        (GPU_PERSISTENCE, {"persistence": False}, "off on GPU 0"),
        (GPU_RECOVERY, {"recovery_action": 2}, "a reboot of the node on GPU 0"),
        (GPU_RECOVERY, {"recovery_action": 99}, "recovery step 99"),
        (GPU_SLOWDOWN, {"reasons": (0x88, 0x80)}, "GPU 0 (0000:18:00.0): power brake"),
        (GPU_SLOWDOWN, {"reasons": (0x40, 0x40)}, "thermal slowdown by the hardware"),
        (GPU_TEMPERATURE, {"margin": 0, "temperature": 87}, "at 87 C"),
        (GPU_TEMPERATURE, {"margin": None, "hottest": 85, "temperature": 85}, "at 85 C"),
        (GPU_PRESENT, {"lost": "Unknown Error"}, "does not answer: Unknown Error"),
        (GPU_PRESENT, {"errors": ("GPU is lost",)}, "answers with GPU is lost"),
    ],
)
def test_one_gpu_in_trouble_is_named(check: object, change: dict[str, object], says: str) -> None:
    result = check.look(with_gpus(empty_machine(), change))

    assert result.status is CheckStatus.BAD
    assert says in result.says
    assert "GPU 1" not in result.says
    assert result.fix


@for_each(
    ("check", "change"),
    [
        (GPU_ECC, {"uncorrected_ever": 3}),
        (GPU_SLOWDOWN, {"reasons": (0x8, 0x1)}),
        (GPU_SLOWDOWN, {"reasons": (0x1 | 0x2 | 0x4, 0x1 | 0x2 | 0x4)}),
        (GPU_TEMPERATURE, {"margin": None, "hottest": 85, "temperature": 84}),
        (GPU_TEMPERATURE, {"margin": 1, "hottest": 20}),
    ],
    ids=["errors of earlier times", "slow for a moment", "idle, clocks set, power cap", "warm", "margin counts"],
)
def test_what_only_looks_like_trouble_is_ok(check: object, change: dict[str, object]) -> None:
    assert check.look(with_gpus(empty_machine(), change)).status is CheckStatus.OK


def test_a_gpu_whose_ecc_is_off_counts_no_errors() -> None:
    off = {"ecc": False, "uncorrected": None}

    assert GPU_ECC.look(with_gpus(empty_machine(), off, off)).status is CheckStatus.SKIPPED


@for_each(
    ("added", "status"),
    [
        ({}, CheckStatus.OK),
        ({"replay": 1}, CheckStatus.BAD),
        ({"recovery": 1}, CheckStatus.BAD),
        ({"crc": 99}, CheckStatus.OK),
        ({"crc": 100}, CheckStatus.BAD),
    ],
)
def test_nvlink_errors_are_judged_by_what_is_added_and_not_by_their_age(
    added: dict[str, int], status: CheckStatus
) -> None:
    links = (link(0, **added), *gpu_of(with_gpus(empty_machine())).links[1:])

    result = GPU_NVLINK.look(with_gpus(empty_machine(), {"links": links}))

    assert result.status is status
    assert ("link 0" in result.says) is (status is CheckStatus.BAD)


def test_a_gpu_with_fewer_links_than_its_like_is_named() -> None:
    links = gpu_of(with_gpus(empty_machine())).links
    down = tuple(replace(one, active=one.number > 0) for one in links)

    result = GPU_NVLINK.look(with_gpus(empty_machine(), {}, {"links": down}))

    assert result.says == "GPU 1 (0000:2a:00.0) has 17 active links, others of its model 18"


def test_gpus_of_another_model_may_have_fewer_links() -> None:
    few = {"name": "NVIDIA A100-PCIE-40GB", "links": (link(),)}

    assert GPU_NVLINK.look(with_gpus(empty_machine(), few)).status is CheckStatus.OK


@for_each(
    ("environ", "status"),
    [
        ({"SLURM_GPUS_ON_NODE": "8"}, CheckStatus.BAD),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, CheckStatus.BAD),
        ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"}, CheckStatus.OK),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, CheckStatus.OK),
        ({"LOCAL_WORLD_SIZE": "8"}, CheckStatus.OK),
    ],
)
def test_fewer_gpus_than_the_environment_speaks_of_are_bad(environ: dict[str, str], status: CheckStatus) -> None:
    result = GPU_PRESENT.look(with_environ(with_gpus(empty_machine()), environ))

    assert result.status is status


def test_a_driver_that_does_not_answer_is_bad_and_leaves_the_other_checks_undecided() -> None:
    stuck = without_nvml(machine("pci_h100.json"), DriverStuck("NVML gave no answer: it did not answer in 10 s"))

    assert GPU_PRESENT.look(stuck).status is CheckStatus.BAD
    assert GPU_ECC.look(stuck).status is CheckStatus.SKIPPED


def test_a_reader_that_fails_where_there_is_no_gpu_speaks_against_nothing() -> None:
    stuck = without_nvml(machine("pci_vm.json"), DriverStuck("NVML gave no answer: it did not answer in 10 s"))

    assert GPU_PRESENT.look(stuck).status is CheckStatus.SKIPPED


def test_a_job_that_was_given_gpus_where_no_driver_is_loaded_is_bad() -> None:
    nothing = without_nvml(machine("pci_vm.json"), Unanswered("no NVIDIA driver is loaded here"))

    assert GPU_PRESENT.look(with_environ(nothing, {"SLURM_GPUS_ON_NODE": "8"})).status is CheckStatus.BAD
    assert GPU_PRESENT.look(nothing).status is CheckStatus.SKIPPED
