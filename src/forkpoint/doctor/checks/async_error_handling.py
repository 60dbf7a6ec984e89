"""What happens after a timeout?

0: nothing, the job hangs for good without a line. 1 and 2 abort the communicators first, which can itself block; 3 ends
the process without. Torch's default is 3 since 2.2, but torchrun exports 1 to its workers unless it is set (seen in
2.13). Without a watchdog (blocking wait) or its monitor nobody notices at all.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import release_of, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import blocking_wait, parse_bool
from forkpoint.launch_env.release import Release

_NAMES = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
_MONITOR = "TORCH_NCCL_ENABLE_MONITORING"
_MODES = {
    "1": "abort and end",
    "2": "abort, the process stays",
    "3": "end without abort",
}


def look(system: System) -> CheckResult:
    release = release_of(system)
    if isinstance(release, CheckResult):
        return release
    environ = system.environ
    if blocking := blocking_wait(environ):
        return bad(f"{blocking} is on: no watchdog runs at all", f"unset {blocking}")
    if parse_bool(environ.get(_MONITOR, "")) is False:
        return bad(f"{_MONITOR} is off: a watchdog that is stuck itself hangs the job for good", f"unset {_MONITOR}")
    name = next((name for name in _NAMES if name in environ), None)
    mode = environ[name] if name else _default(release)
    by = name or f"the default of torch {release}"
    if mode not in _MODES:
        what = "timeouts are not enforced" if mode == "0" else "no such mode"
        return bad(f"{by} is {mode!r}: {what}", f"export {_NAMES[0]}=3", ("mode", mode))
    return ok(f"{mode} ({_MODES[mode]}) by {by}{_torchrun_sets(name, mode)}", ("mode", mode))


def _default(release: Release) -> str:
    return "3" if release >= Release(2, 2) else "1" if release >= Release(2, 1) else "0"


def _torchrun_sets(name: str | None, mode: str) -> str:
    if name is None:
        return "; torchrun sets 1 for its workers"
    return "; set 3 where ranks hang while they abort" if mode in {"1", "2"} else ""


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.13.0"), {_NAMES[0]: "0"})


CHECK = Check(
    name="async-error-handling",
    title="what follows a timeout",
    why="With handling off, or no watchdog, a hang has no end and leaves no line: only the scheduler's limit stops it.",
    look=look,
    inject=inject,
)
