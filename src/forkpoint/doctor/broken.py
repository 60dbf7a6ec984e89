"""A machine that is broken on purpose, as `checks.toml` says, to show that a check can fail. Nothing is touched: only answers of a
System are replaced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from forkpoint.doctor import examine
from forkpoint.doctor.checks.kernel import read_log, read_uptime
from forkpoint.doctor.nvml import Gpu, LinkErrors, NvLink, Nvml
from forkpoint.doctor.report import DoctorCheck, DoctorReport
from forkpoint.doctor.system import (
    Disk,
    Process,
    Ran,
    System,
    Unanswered,
    with_disk,
    with_environ,
    with_files,
    with_outputs,
    with_packages,
    with_processes,
)


def examine_injected(system: System, check: DoctorCheck) -> DoctorReport:
    """One check on a simulated machine that was broken for it."""
    return replace(examine(break_machine(system, check.broken), [check]), injected=check.name)


def break_machine(system: System, told: Mapping[str, Any]) -> System:
    for what, value in told.items():
        system = _WAYS[what](system, value)
    return system


def _with_gpu(system: System, changes: Mapping[str, Any]) -> System:
    """Breaks the first GPU of the machine, or a simulated one if there is none."""
    nvml = system.nvml()
    nvml = nvml if isinstance(nvml, Nvml) and nvml.readable else Nvml("580.00", (_SOUND,))
    first, *others = nvml.readable
    broken = msgspec.convert({**msgspec.to_builtins(first), **changes}, Gpu)
    return replace(system, nvml=lambda: replace(nvml, gpus=(broken, *others)))


_NO_ERRORS = LinkErrors(0, 0, 0)
_SOUND = Gpu(
    index=0,
    name="a GPU that is not there",
    bus_id="0000:00:00.0",
    persistence=True,
    ecc=True,
    uncorrected=0,
    uncorrected_ever=0,
    remap_pending=False,
    remap_failed=False,
    pages_pending=False,
    recovery_action=0,
    temperature=30,
    hottest=85,
    reasons=(0, 0),
    links=(NvLink(0, active=True, before=_NO_ERRORS, after=_NO_ERRORS),),
)


def _with_kernel_line(system: System, line: str) -> System:
    log, uptime = read_log(system), read_uptime(system) or 0.0
    before = "" if isinstance(log, Unanswered) else log.rstrip("\n") + "\n"
    return with_outputs(system, {"dmesg": Ran(0, f"{before}[{uptime:12.6f}] {line}\n")})


def _with_processes(system: System, told: Sequence[Mapping[str, Any]]) -> System:
    """Those with an environment are of the job."""
    given = ({"uid": 0, "state": "S", "started": 0.0, "environ": None, **one} for one in told)
    processes = [msgspec.convert(one, Process) for one in given]
    of_job = [p if p.environ is None else replace(p, environ={**system.environ, **p.environ}) for p in processes]
    return with_processes(system, of_job)


def _with_disk(system: System, told: Mapping[str, Any]) -> System:
    facts = {"free": 0, "inodes": 0, "inodes_free": 0, **told}
    return with_disk(system, told["path"], msgspec.convert(facts, Disk))


_WAYS: dict[str, Callable[[System, Any], System]] = {
    "gpu": _with_gpu,
    "kernel": _with_kernel_line,
    "torch": lambda system, version: with_packages(system, {"torch": version}),
    "environ": with_environ,
    "unset": lambda system, names: with_environ(system, {}, names),
    "files": lambda system, texts: with_files(system, {p.format(proc=system.proc): text for p, text in texts.items()}),
    "disk": _with_disk,
    "outputs": lambda system, told: with_outputs(system, msgspec.convert(told, dict[str, Ran])),
    "processes": _with_processes,
}
