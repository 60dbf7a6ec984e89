"""What the driver itself says must be done before a GPU is used again. Numbers as in nvml.h (nvmlDeviceGpuRecoveryAction).

Where the driver tells this, it stands above what an Xid's table says.
"""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import UNTOLD, break_gpu, look_at_gpus
from forkpoint.doctor.nvml import Gpu

_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "draining peer-to-peer work",
    4: "draining, then a reset of the GPU",
    5: "recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the system",
}


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    told = [gpu for gpu in gpus if gpu.recovery_action is not None]
    if not told:
        return skipped(f"{UNTOLD}: the field is of newer drivers")
    needing = [gpu for gpu in told if gpu.recovery_action]
    if needing:
        return bad(
            "; ".join(f"the driver asks for {_action(gpu)} on {gpu.label}" for gpu in needing),
            "start no job on it; the node's operator takes that step (`nvidia-smi -q | grep -i 'recovery action'`)",
        )
    return ok(f"the driver asks for no recovery step on {len(told)} GPUs")


def _action(gpu: Gpu) -> str:
    number = gpu.recovery_action or 0
    return _ACTIONS.get(number, f"recovery step {number}")


CHECK = Check(
    name="gpu-recovery",
    title="the driver asks for no recovery step",
    why="A GPU that waits for a reset fails the next job that is placed on it.",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, recovery_action=4)),
)
