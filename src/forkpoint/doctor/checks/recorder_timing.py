"""Was timing left on?

TORCH_NCCL_ENABLE_TIMING=1 records when calls start on the GPU: without it a kernel that runs and one that waits look the
same. It is for one run that asks this question. In production its event queries can stall the watchdog when another
thread holds a CUDA lock, and TORCH_DISTRIBUTED_DEBUG=DETAIL, which includes it, puts a barrier before every call.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import parse_bool

_SWITCHES = ("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING", "TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG")
_DETAIL = ("TORCH_DISTRIBUTED_DEBUG", "DETAIL")


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    on = [name for name in _SWITCHES if parse_bool(system.environ.get(name, ""))]
    if system.environ.get(_DETAIL[0], "").upper() == _DETAIL[1]:
        on.append("=".join(_DETAIL))
    if not on:
        return ok("off, as it should be between investigations", ("timing", "off"))
    return bad(
        f"on by {', '.join(on)}: right for a run that asks which GPU did not start, not for production",
        f"unset {' '.join(name.partition('=')[0] for name in on)} when the question is answered",
        ("timing", "on"),
    )


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.13.0"), {"TORCH_NCCL_ENABLE_TIMING": "1"})


CHECK = Check(
    name="recorder-timing",
    title="timing of calls left on",
    why="The extra events can stall the watchdog itself; DETAIL slows every collective and hides faults of timing.",
    look=look,
    inject=inject,
)
