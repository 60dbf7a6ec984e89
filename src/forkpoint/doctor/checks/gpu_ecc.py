"""Memory errors that ECC could not correct, since the driver was loaded.

Errors that were corrected, and errors of earlier times, do not mean that a GPU must be replaced: the driver maps bad
rows away at the next reset, and what counts is whether that works (`gpu-memory-rows`).
"""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import break_gpu, look_at_gpus
from forkpoint.doctor.nvml import Gpu


def _judge(gpus: Sequence[Gpu]) -> CheckResult:
    counted = [gpu for gpu in gpus if gpu.ecc is not False and gpu.uncorrected is not None]
    if not counted:
        return skipped("no GPU counts memory errors: ECC is off, or it has none")
    details = (
        ("ECC", ", ".join(dict.fromkeys("on" if gpu.ecc else "off" for gpu in gpus))),
        *((f"count {gpu.label} uncorrected", str(gpu.uncorrected_ever)) for gpu in counted),
    )
    hit = [gpu for gpu in counted if gpu.uncorrected]
    if hit:
        return bad(
            "; ".join(f"{gpu.label}: {gpu.uncorrected} uncorrected since the driver was loaded" for gpu in hit),
            "look for Xid 48, 63, 64, 94 and 95 in the kernel log (`forkpoint explain xid48`); the GPU's operator drains "
            "it, resets it and tests it again. Replaced is a GPU whose rows cannot be remapped, or that does it again",
            *details,
        )
    return ok(f"no uncorrected memory error on {len(counted)} of {len(gpus)} GPUs", *details)


CHECK = Check(
    name="gpu-ecc",
    title="no uncorrected memory errors",
    why="An uncorrected error ends the process that read the memory; its peers hang (Xid 48, 94, 95).",
    look=look_at_gpus(_judge),
    inject=break_gpu(lambda gpu: replace(gpu, ecc=True, uncorrected=1)),
)
