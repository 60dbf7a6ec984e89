"""Bad memory that waits to be mapped away, or could not be. Older GPUs retire pages, newer ones (Ampere on) remap rows."""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import UNTOLD, break_gpu, labels, look_at_gpus
from forkpoint.doctor.nvml import Gpu


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
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
            f"bad memory of {labels(waiting)} is mapped away only at the next reset",
            "when no job runs on it, the GPU's operator resets it (`nvidia-smi --gpu-reset -i INDEX`) or reboots the node",
        )
    return ok(f"no memory waits to be mapped away on {len(counted)} GPUs")


CHECK = Check(
    name="gpu-memory-rows",
    title="no bad memory waits for a reset",
    why="Until it is mapped away the same memory can fail again under the next job (Xid 63, 64).",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, remap_failed=False, remap_pending=True)),
)
