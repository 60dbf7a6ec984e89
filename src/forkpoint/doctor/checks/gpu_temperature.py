"""Is a GPU at the temperature at which it slows down? The limit is the GPU's own: a maximum, or the degrees left to it."""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import UNTOLD, break_gpu, look_at_gpus
from forkpoint.doctor.nvml import Gpu


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    told = [gpu for gpu in gpus if _left(gpu) is not None]
    if not told:
        return skipped(UNTOLD)
    hot = [gpu for gpu in told if (left := _left(gpu)) is not None and left <= 0]
    if hot:
        return bad(
            "; ".join(f"{gpu.label} is at {gpu.temperature} C, its limit" for gpu in hot),
            "fans, cooling and dust filters of the node are its operator's; compare it with its neighbours",
        )
    warmest = max(gpu.temperature or 0 for gpu in told)
    return ok(f"the warmest of {len(told)} GPUs is at {warmest} C, below its limit")


def _left(gpu: Gpu) -> int | None:
    if gpu.margin is not None:
        return gpu.margin
    known = gpu.temperature is not None and gpu.hottest is not None
    return (gpu.hottest or 0) - (gpu.temperature or 0) if known else None


CHECK = Check(
    name="gpu-temperature",
    title="no GPU is at its heat limit",
    why="At its limit a GPU slows down, and every rank waits for the slowest.",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, temperature=90, hottest=85, margin=None)),
)
