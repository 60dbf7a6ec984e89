"""What the checks of GPUs have in common: whom to ask, and how one GPU is broken for `--inject`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from forkpoint.doctor.check import CheckResult, skipped
from forkpoint.doctor.nvml import Gpu, Nvml, parse_nvml
from forkpoint.doctor.pci import lacks_gpu
from forkpoint.doctor.system import System, Unanswered

UNTOLD = "neither the GPUs nor their driver report this"


def look_at_gpus(judge: Callable[[Sequence[Gpu]], CheckResult]) -> Callable[[System], CheckResult]:
    """A check of the GPUs that can be read. That some cannot is what `gpu-present` tells."""

    def look(system: System) -> CheckResult:
        nvml = system.nvml()
        if isinstance(nvml, Unanswered):
            return skip_gpus(system, nvml)
        return judge(nvml.readable) if nvml.readable else skipped("NVML shows no GPU that can be read")

    return look


def skip_gpus(system: System, answer: Unanswered) -> CheckResult:
    """Without a GPU, do not ask the user to install a library for it."""
    lacking = lacks_gpu(system)
    return skipped(lacking) if lacking else skipped(answer.why, answer.fix)


def break_gpu(change: Callable[[Gpu], Gpu]) -> Callable[[System], System]:
    """The first GPU of the machine, or a sound one where there is none, with something wrong."""

    def inject(system: System) -> System:
        nvml = some_gpus(system)
        broken = (change(nvml.readable[0]), *nvml.readable[1:])
        return replace(system, nvml=lambda: replace(nvml, gpus=broken))

    return inject


def some_gpus(system: System) -> Nvml:
    nvml = system.nvml()
    if isinstance(nvml, Nvml) and nvml.readable:
        return nvml
    sound = parse_nvml({"driver": "580.00", "gpus": [_SOUND]})
    assert isinstance(sound, Nvml)
    return sound


_LINK = {"active": 1, "replay": 0, "recovery": 0, "crc": 0}
_SOUND = {
    "index": 0,
    "name": "a GPU that is not there",
    "bus_id": "00000000:00:00.0",
    "persistence": 1,
    "ecc": 1,
    "uncorrected": 0,
    "uncorrected_ever": 0,
    "remap_pending": 0,
    "remap_failed": 0,
    "pages_pending": 0,
    "recovery_action": 0,
    "temperature": 30,
    "hottest": 85,
    "reasons": 0,
    "links": [_LINK],
    "later": {"reasons": 0, "links": [_LINK]},
}


def labels(gpus: Sequence[Gpu]) -> str:
    return ", ".join(gpu.label for gpu in gpus)


def models(gpus: Sequence[Gpu]) -> str:
    """`8 x NVIDIA H200`, in the order of their first."""
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
