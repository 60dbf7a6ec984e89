"""Is a GPU held back by heat or by its power supply? Being idle, clocks that someone set and the ordinary power cap are
no trouble. Bits as in nvml.h (nvmlClocksEventReasons). One read can catch a moment: two, a second apart, must agree.
"""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import UNTOLD, break_gpu, look_at_gpus
from forkpoint.doctor.nvml import Gpu

HARDWARE = 0x08
SOFTWARE_THERMAL = 0x20
HARDWARE_THERMAL = 0x40
POWER_BRAKE = 0x80
_SLOW = {
    HARDWARE: "hardware slowdown",
    SOFTWARE_THERMAL: "thermal slowdown by the driver",
    HARDWARE_THERMAL: "thermal slowdown by the hardware",
    POWER_BRAKE: "power brake",
}


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    told = [gpu for gpu in gpus if gpu.reasons is not None]
    if not told:
        return skipped(UNTOLD)
    slow = [f"{gpu.label}: {', '.join(held)}" for gpu in told if (held := _held(gpu))]
    if slow:
        return bad(
            "; ".join(slow),
            "watch `nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu,clocks_event_reasons.active --format=csv -l 5`; "
            "power and cooling of the node are its operator's. In a job this GPU's rank is the straggler",
        )
    return ok(f"none of {len(told)} GPUs is held back by heat or power")


def _held(gpu: Gpu) -> list[str]:
    both = gpu.reasons[0] & gpu.reasons[1] if gpu.reasons else 0
    return [name for bit, name in _SLOW.items() if both & bit]


CHECK = Check(
    name="gpu-slowdown",
    title="no GPU is slowed by heat or power",
    why="One slow GPU makes every rank wait in every collective, up to the timeout.",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, reasons=(HARDWARE | POWER_BRAKE, HARDWARE | POWER_BRAKE))),
)
