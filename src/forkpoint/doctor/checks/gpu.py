"""GPUs, as NVML shows them: present, healthy, and not throttled."""

import re
from collections.abc import Iterator, Sequence

from forkpoint.doctor.nvml import (
    UNTOLD,
    DriverStuck,
    Gpu,
    Nvml,
    labels,
    lacks_gpu,
    look_at_gpus,
    models,
    skip_gpus,
)
from forkpoint.doctor.report import CheckResult, bad, check, judged, ok, skipped
from forkpoint.doctor.system import System

_LOOK_CLOSER = (
    "look at `nvidia-smi -L` and at the kernel log (`dmesg | grep -E 'NVRM|Xid'`); an operator must check a lost GPU"
)
_GPU_LIST = re.compile(r"(?:\d+|GPU-[\w-]+)(?:,(?:\d+|GPU-[\w-]+))*")


def _look_at_gpu_present(system: System) -> CheckResult:
    """Are all GPUs there, and do they answer?

    A GPU that fell off the bus keeps its number and fails when it is queried, or is missing from the count. A driver that
    does not answer at all is bad if a job expects GPUs.
    """
    nvml = system.nvml()
    wanted = _wanted_gpus(system)
    if isinstance(nvml, Nvml):
        return _judge_gpu_present(nvml, wanted)
    if isinstance(nvml, DriverStuck) and not lacks_gpu(system):
        return bad(nvml.why, _LOOK_CLOSER)
    if wanted and nvml.fix is None:
        number, variable = wanted
        return bad(f"{variable} expects {number} GPU{'s' * (number > 1)}, and {nvml.why}", _LOOK_CLOSER)
    return skip_gpus(system, nvml)


def _judge_gpu_present(nvml: Nvml, wanted: tuple[int, str] | None) -> CheckResult:
    details = (("GPUs", models(nvml.readable)),)
    lost = [f"{gpu.label} does not answer: {gpu.lost}" for gpu in nvml.gpus if gpu.lost is not None]
    failing = [f"{gpu.label} answers with {', '.join(gpu.errors)}" for gpu in nvml.gpus if gpu.errors]
    if lost or failing:
        return bad("; ".join(lost or failing), _LOOK_CLOSER, *details)
    if wanted and len(nvml.gpus) < wanted[0]:
        number, variable = wanted
        return bad(f"{len(nvml.gpus)} of {number} GPUs are there ({variable})", _LOOK_CLOSER, *details)
    if not nvml.gpus:
        return skipped("NVML shows no GPU")
    expected = f", as {wanted[1]} expects" if wanted else "; the expected number is not known"
    return ok(f"{models(nvml.gpus)}{expected}", *details)


def _wanted_gpus(system: System) -> tuple[int, str] | None:
    """The largest number that the environment gives, and the variable that gives it."""
    return max(_gpu_counts(system), default=None)


def _gpu_counts(system: System) -> Iterator[tuple[int, str]]:
    """LOCAL_WORLD_SIZE does not count: ranks can run without GPUs, and several can share one."""
    on_node = system.environ.get("SLURM_GPUS_ON_NODE", "")
    if on_node.isdigit() and int(on_node):
        yield int(on_node), "SLURM_GPUS_ON_NODE"
    listed = system.environ.get("CUDA_VISIBLE_DEVICES", "")
    if _GPU_LIST.fullmatch(listed):
        yield len(listed.split(",")), "CUDA_VISIBLE_DEVICES"


GPU_PRESENT = check("gpu-present", _look_at_gpu_present)


_RECOVERY_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "draining peer-to-peer work",
    4: "draining, then a reset of the GPU",
    5: "recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the system",
}


def _judge_gpu_recovery(gpus: Sequence[Gpu]) -> CheckResult:
    """What the driver itself says must be done before a GPU is used again. Numbers as in nvml.h (nvmlDeviceGpuRecoveryAction).

    If the driver reports this, it overrides what the table of Xids says.
    """
    told = [gpu for gpu in gpus if gpu.recovery_action is not None]
    if not told:
        return skipped(f"{UNTOLD}: only newer drivers have this field")
    return judged(
        [f"the driver asks for {_recovery_action(gpu)} on {gpu.label}" for gpu in told if gpu.recovery_action],
        "start no job on it; the node's operator takes that step (`nvidia-smi -q | grep -i 'recovery action'`)",
        f"the driver asks for no recovery step on {len(told)} GPUs",
    )


def _recovery_action(gpu: Gpu) -> str:
    number = gpu.recovery_action or 0
    return _RECOVERY_ACTIONS.get(number, f"recovery step {number}")


GPU_RECOVERY = check("gpu-recovery", look_at_gpus(_judge_gpu_recovery))


def _judge_gpu_ecc(gpus: Sequence[Gpu]) -> CheckResult:
    """Memory errors that ECC could not correct, since the driver was loaded.

    Corrected errors, and errors from earlier, do not mean that a GPU must be replaced: the driver remaps bad rows at the
    next reset, and what counts is whether that works (`gpu-memory-rows`).
    """
    counted = [gpu for gpu in gpus if gpu.ecc is not False and gpu.uncorrected is not None]
    if not counted:
        return skipped("no GPU counts memory errors: ECC is off or not supported")
    details = (
        ("ECC", ", ".join(dict.fromkeys("on" if gpu.ecc else "off" for gpu in gpus))),
        *((f"count {gpu.label} uncorrected", str(gpu.uncorrected_ever)) for gpu in counted),
    )
    return judged(
        [
            f"{gpu.label}: {gpu.uncorrected} uncorrected since the driver was loaded"
            for gpu in counted
            if gpu.uncorrected
        ],
        "look for Xid 48, 63, 64, 94 and 95 in the kernel log (`forkpoint explain xid48`); the GPU's operator drains "
        "it, resets it and tests it again. Replace a GPU whose rows cannot be remapped, or that fails again",
        f"no uncorrected memory error on {len(counted)} of {len(gpus)} GPUs",
        *details,
    )


GPU_ECC = check("gpu-ecc", look_at_gpus(_judge_gpu_ecc))


def _judge_gpu_memory_rows(gpus: Sequence[Gpu]) -> CheckResult:
    """Bad memory that waits to be remapped, or could not be. Older GPUs retire pages, newer ones (Ampere on) remap rows."""
    counted = [gpu for gpu in gpus if gpu.remap_failed is not None or gpu.pages_pending is not None]
    if not counted:
        return skipped(UNTOLD)
    failed = [gpu for gpu in counted if gpu.remap_failed]
    if failed:
        return bad(
            f"remapping a bad memory row failed on {labels(failed)}",
            "take the node out of service: NVIDIA replaces a GPU for this. Evidence for the vendor: "
            "`nvidia-smi -q -d ECC,ROW_REMAPPER`, then `nvidia-bug-report.sh`",
        )
    waiting = [gpu for gpu in counted if gpu.remap_pending or gpu.pages_pending]
    if waiting:
        return bad(
            f"bad memory of {labels(waiting)} is remapped only at the next reset",
            "when no job runs on it, the GPU's operator resets it (`nvidia-smi --gpu-reset -i INDEX`) or reboots the node",
        )
    return ok(f"no memory waits to be remapped on {len(counted)} GPUs")


GPU_MEMORY_ROWS = check("gpu-memory-rows", look_at_gpus(_judge_gpu_memory_rows))


HARDWARE = 0x08
SOFTWARE_THERMAL = 0x20
HARDWARE_THERMAL = 0x40
POWER_BRAKE = 0x80
_SLOWDOWNS = {
    HARDWARE: "hardware slowdown",
    SOFTWARE_THERMAL: "thermal slowdown by the driver",
    HARDWARE_THERMAL: "thermal slowdown by the hardware",
    POWER_BRAKE: "power brake",
}


def _judge_gpu_slowdown(gpus: Sequence[Gpu]) -> CheckResult:
    """Is a GPU throttled by heat or by its power supply? Idle clocks, clocks that someone set and the ordinary power cap do
    not count. Bits as in nvml.h (nvmlClocksEventReasons). Two reads, a second apart, must agree.
    """
    told = [gpu for gpu in gpus if gpu.reasons is not None]
    if not told:
        return skipped(UNTOLD)
    return judged(
        [f"{gpu.label}: {', '.join(held)}" for gpu in told if (held := _slowdowns_of(gpu))],
        "watch `nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu,clocks_event_reasons.active --format=csv -l 5`; "
        "the operator checks power and cooling of the node. In a job this GPU's rank is the straggler",
        f"none of {len(told)} GPUs is throttled by heat or power",
    )


def _slowdowns_of(gpu: Gpu) -> list[str]:
    both = gpu.reasons[0] & gpu.reasons[1] if gpu.reasons else 0
    return [name for bit, name in _SLOWDOWNS.items() if both & bit]


GPU_SLOWDOWN = check("gpu-slowdown", look_at_gpus(_judge_gpu_slowdown))


def _judge_gpu_temperature(gpus: Sequence[Gpu]) -> CheckResult:
    """Is a GPU at the temperature at which it slows down? The limit is the GPU's own: a maximum, or the remaining degrees."""
    told = [gpu for gpu in gpus if _degrees_left(gpu) is not None]
    if not told:
        return skipped(UNTOLD)
    return judged(
        [f"{gpu.label} is at {gpu.temperature} C, its limit" for gpu in told if (_degrees_left(gpu) or 0) <= 0],
        "the operator checks fans, cooling and dust filters of the node; compare it with its neighbours",
        f"the warmest of {len(told)} GPUs is at {max(gpu.temperature or 0 for gpu in told)} C, below its limit",
    )


def _degrees_left(gpu: Gpu) -> int | None:
    if gpu.margin is not None:
        return gpu.margin
    known = gpu.temperature is not None and gpu.hottest is not None
    return (gpu.hottest or 0) - (gpu.temperature or 0) if known else None


GPU_TEMPERATURE = check("gpu-temperature", look_at_gpus(_judge_gpu_temperature))


def _judge_gpu_persistence(gpus: Sequence[Gpu]) -> CheckResult:
    """Does the driver stay loaded between jobs? Without persistence each job starts by initialising all GPUs, and the error
    counters of the last job are cleared when it ends (NVIDIA, Driver Persistence).
    """
    told = [gpu for gpu in gpus if gpu.persistence is not None]
    if not told:
        return skipped(UNTOLD)
    off = [gpu for gpu in told if not gpu.persistence]
    return judged(
        [f"persistence is off on {labels(off)}"] if off else [],
        "the node's operator: `systemctl enable --now nvidia-persistenced`",
        f"persistence is on for {len(told)} GPUs",
        ("persistence", "off" if off else "on"),
    )


GPU_PERSISTENCE = check("gpu-persistence", look_at_gpus(_judge_gpu_persistence))
