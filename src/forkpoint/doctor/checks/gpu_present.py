"""Are all GPUs there, and do they answer?

A GPU that fell off the bus keeps its number and fails when it is asked for, or is missing from the count. A driver that
does not answer at all is bad where a job expects GPUs.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.gpus import models, skip_gpus, some_gpus
from forkpoint.doctor.nvml import DriverStuck, Nvml
from forkpoint.doctor.pci import lacks_gpu
from forkpoint.doctor.system import System

_LOOK = (
    "look at `nvidia-smi -L` and at the kernel's words (`dmesg | grep -E 'NVRM|Xid'`); a lost GPU needs its operator"
)
_LISTED = re.compile(r"(?:\d+|GPU-[\w-]+)(?:,(?:\d+|GPU-[\w-]+))*")


def look(system: System) -> CheckResult:
    nvml = system.nvml()
    wanted = _wanted(system)
    if isinstance(nvml, Nvml):
        return _judge(nvml, wanted)
    if isinstance(nvml, DriverStuck) and not lacks_gpu(system):
        return bad(nvml.why, _LOOK)
    if wanted and nvml.fix is None:
        number, variable = wanted
        return bad(f"{variable} speaks of {number} GPU{'s' * (number > 1)}, and {nvml.why}", _LOOK)
    return skip_gpus(system, nvml)


def _judge(nvml: Nvml, wanted: tuple[int, str] | None) -> CheckResult:
    details = (("GPUs", models(nvml.readable)),)
    lost = [gpu for gpu in nvml.gpus if gpu.lost is not None]
    if lost:
        return bad("; ".join(f"{gpu.label} does not answer: {gpu.lost}" for gpu in lost), _LOOK, *details)
    failing = [gpu for gpu in nvml.gpus if gpu.errors]
    if failing:
        return bad("; ".join(f"{gpu.label} answers with {', '.join(gpu.errors)}" for gpu in failing), _LOOK, *details)
    if wanted and len(nvml.gpus) < wanted[0]:
        number, variable = wanted
        return bad(f"{len(nvml.gpus)} of {number} GPUs are there ({variable})", _LOOK, *details)
    if not nvml.gpus:
        return skipped("NVML shows no GPU")
    expected = f", as {wanted[1]} expects" if wanted else "; nothing tells how many there should be"
    return ok(f"{models(nvml.gpus)}{expected}", *details)


def _wanted(system: System) -> tuple[int, str] | None:
    """The largest number that the environment gives, and the variable that gives it."""
    return max(_numbers(system), default=None)


def _numbers(system: System) -> Iterator[tuple[int, str]]:
    """LOCAL_WORLD_SIZE does not count: ranks can run without GPUs, and several can share one."""
    on_node = system.environ.get("SLURM_GPUS_ON_NODE", "")
    if on_node.isdigit() and int(on_node):
        yield int(on_node), "SLURM_GPUS_ON_NODE"
    listed = system.environ.get("CUDA_VISIBLE_DEVICES", "")
    if _LISTED.fullmatch(listed):
        yield len(listed.split(",")), "CUDA_VISIBLE_DEVICES"


def inject(system: System) -> System:
    nvml = some_gpus(system)
    lost = replace(nvml.readable[0], lost="GPU is lost")
    return replace(system, nvml=lambda: replace(nvml, gpus=(lost, *nvml.readable[1:])))


CHECK = Check(
    name="gpu-present",
    title="every GPU is there and answers",
    why="A rank whose GPU is gone dies or blocks in the driver, and its peers time out waiting for it (Xid 79).",
    look=look,
    inject=inject,
)
