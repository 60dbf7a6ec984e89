"""Does the driver stay loaded between jobs? Without persistence each job starts by waking all GPUs, and the counters that
tell of the last job's errors are cleared when it ends (NVIDIA, Driver Persistence).
"""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import UNTOLD, break_gpu, labels, look_at_gpus
from forkpoint.doctor.nvml import Gpu


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    told = [gpu for gpu in gpus if gpu.persistence is not None]
    if not told:
        return skipped(UNTOLD)
    off = [gpu for gpu in told if not gpu.persistence]
    details = (("persistence", "off" if off else "on"),)
    if off:
        return bad(
            f"persistence is off on {labels(off)}",
            "the node's operator: `systemctl enable --now nvidia-persistenced`",
            *details,
        )
    return ok(f"persistence is on for {len(told)} GPUs", *details)


CHECK = Check(
    name="gpu-persistence",
    title="the driver stays loaded between jobs",
    why="Start-up takes seconds longer on such a node, and evidence of the last job's memory errors is lost.",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, persistence=False)),
)
