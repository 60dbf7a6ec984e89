"""The variables that torch and NCCL read: what follows a timeout, and which of them are wrong or unknown."""

from collections.abc import Callable, Iterator, Mapping

from forkpoint.doctor.report import CheckResult, bad, check, ok, skipped
from forkpoint.doctor.system import System
from forkpoint.knowledge.recorder import FIRST, Release, blocking_wait, parse_bool, parse_number, parse_release
from forkpoint.knowledge.variables import FAMILIES, has_known_values, unread, wrong_value

# ---------------------------------------------------------------------------------------------------------------------
# Shared by several checks: the torch release.


def release_of(system: System) -> Release | CheckResult:
    """The installed release, or why settings cannot be judged."""
    torch = system.package("torch")
    release = parse_release(torch.version) if torch else None
    if release is None:
        return skipped(
            "no torch was found to judge by",
            "run it in the job's Python environment, or name a running process of the job: forkpoint doctor --job PID",
        )
    return release


def with_recorder(look: Callable[[System, Release], CheckResult]) -> Callable[[System], CheckResult]:
    """A check of settings for a release of torch that has a recorder; skipped for others."""

    def looked(system: System) -> CheckResult:
        release = release_of(system)
        if isinstance(release, CheckResult):
            return release
        if release < FIRST:
            return skipped(f"torch {release} has no flight recorder; the first one is in {FIRST}")
        return look(system, release)

    return looked


_ASYNC_NAMES = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
_MONITOR = "TORCH_NCCL_ENABLE_MONITORING"
_ASYNC_MODES = {
    "1": "abort and end",
    "2": "abort, the process stays",
    "3": "end without abort",
}


def _look_at_async_error_handling(system: System) -> CheckResult:
    """What happens after a timeout?

    0: nothing, the job hangs forever without a log line. 1 and 2 abort the communicators first, which can itself block; 3
    ends the process without that. Torch's default is 3 since 2.2, but torchrun exports 1 to its workers unless it is set (seen
    in 2.13). Without a watchdog (blocking wait) or its monitor, nothing notices a hang.
    """
    release = release_of(system)
    if isinstance(release, CheckResult):
        return release
    environ = system.environ
    if blocking := blocking_wait(environ):
        return bad(f"{blocking} is on: no watchdog runs at all", f"unset {blocking}")
    if parse_bool(environ.get(_MONITOR, "")) is False:
        return bad(f"{_MONITOR} is off: if the watchdog itself gets stuck, the job hangs forever", f"unset {_MONITOR}")
    name = next((name for name in _ASYNC_NAMES if name in environ), None)
    mode = environ[name] if name else _default_mode(release)
    by = name or f"the default of torch {release}"
    if mode not in _ASYNC_MODES:
        what = "timeouts are not enforced" if mode == "0" else "no such mode"
        return bad(f"{by} is {mode!r}: {what}", f"export {_ASYNC_NAMES[0]}=3", ("mode", mode))
    return ok(f"{mode} ({_ASYNC_MODES[mode]}) by {by}{_torchrun_sets(name, mode)}", ("mode", mode))


def _default_mode(release: Release) -> str:
    return "3" if release >= Release(2, 2) else "1" if release >= Release(2, 1) else "0"


def _torchrun_sets(name: str | None, mode: str) -> str:
    if name is None:
        return "; torchrun sets 1 for its workers"
    return "; set 3 where ranks hang while they abort" if mode in {"1", "2"} else ""


ASYNC_ERROR_HANDLING = check("async-error-handling", _look_at_async_error_handling)


_HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
_DUMP_WAIT = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
_IB, _IB_RETRIES = "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"
_TORCHRUN_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_SHORTEST_DUMP_MS = 12_000
"""Dumps of 2,000 to 20,000 entries with stacks took 6 to 12 s on two cores."""
_SHORTEST_GRACE_S = 30
"""Torchrun's own default; dumps may need longer."""
_COLLECTIVE_S = 600


def _look_at_timeouts(system: System) -> CheckResult:
    """Are the timeouts in the environment consistent?

    The timeout of a collective is not among them: it is an argument in the program (by default 10 minutes for NCCL since 2.2,
    30 before). A dump must be written before the heartbeat ends the process and before a launcher kills it; InfiniBand must
    give up before the watchdog does, or a dead link is reported as a plain timeout.
    """
    release = release_of(system)
    if isinstance(release, CheckResult):
        return release
    heartbeat = _number(system.environ, _HEARTBEAT, _default_heartbeat(release))
    dump = _number(system.environ, _DUMP_WAIT, 15_000 if release >= Release(2, 8) else 60_000)
    problems = list(_timeout_problems(system.environ, heartbeat, dump))
    details = (("heartbeat", f"{heartbeat} s"), ("dump", f"{dump} ms"))
    if problems:
        return bad("; ".join(says for says, _ in problems), "; ".join(fix for _, fix in problems), *details)
    says = f"heartbeat {heartbeat} s, dump {dump / 1000:g} s; the timeout of collectives is set in the program"
    return ok(says, *details)


def _timeout_problems(environ: Mapping[str, str], heartbeat_s: int, dump_ms: int) -> Iterator[tuple[str, str]]:
    if dump_ms < _SHORTEST_DUMP_MS:
        yield f"{_DUMP_WAIT}={dump_ms} is too short for a dump with stacks", f"unset {_DUMP_WAIT}"
    if heartbeat_s * 1000 <= dump_ms:
        yield (
            f"{_HEARTBEAT}={heartbeat_s} ends the process before its dump of {dump_ms / 1000:g} s is due",
            f"unset {_HEARTBEAT}",
        )
    if (wait := _infiniband_s(environ)) is not None and wait >= _COLLECTIVE_S:
        shown = "forever" if wait == float("inf") else f"{wait:.0f} s"
        yield f"{_IB}={environ[_IB]} waits {shown} on a dead link, longer than collectives do", f"unset {_IB}"
    grace = parse_number(environ.get(_TORCHRUN_GRACE, ""))
    if grace is not None and grace < _SHORTEST_GRACE_S:
        yield f"{_TORCHRUN_GRACE}={grace} lets torchrun kill ranks that still write", f"export {_TORCHRUN_GRACE}=90"


def _infiniband_s(environ: Mapping[str, str]) -> float | None:
    """4.096 us times two to the power of the setting, for each try; None if it is not set."""
    exponent = parse_number(environ.get(_IB, ""))
    if exponent is None:
        return None
    if exponent == 0 or exponent >= 32:
        return float("inf")
    return 4.096e-6 * 2**exponent * _number(environ, _IB_RETRIES, 7)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = parse_number(environ.get(name, ""))
    return default if value is None else value


def _default_heartbeat(release: Release) -> int:
    return 480 if release >= Release(2, 5) else 600 if release >= Release(2, 3) else 120


TIMEOUTS = check("timeouts", _look_at_timeouts)


def _look_at_variable_values(system: System) -> CheckResult:
    """Do variables have values that torch accepts?

    A value that is not a boolean makes torch raise `Invalid value for environment variable` when the process group is created;
    NCCL ignores values that it does not know.
    """
    known = {name: value for name, value in sorted(system.environ.items()) if has_known_values(name)}
    if not known:
        return skipped("none of torch's or NCCL's switches is set")
    wrong = {name: why for name, value in known.items() if (why := wrong_value(name, value))}
    if not wrong:
        return ok(f"{len(known)} are set, all to valid values")
    says = "; ".join(f"{name}={known[name]!r} is {why}" for name, why in wrong.items())
    return bad(says, f"correct or unset {' '.join(wrong)}")


VARIABLE_VALUES = check("variable-values", _look_at_variable_values)


def _look_at_unknown_variables(system: System) -> CheckResult:
    """Are there variables that nothing reads?

    NCCL_TIMEOUT is in many guides and never existed; a misspelt name has no effect and raises no error. Known names are those
    of torch up to 2.14 and of every release of NCCL; plug-ins and clusters have their own, so an unknown NCCL_ name is only
    reported if it is spelled almost like a real one.
    """
    release = release_of(system)
    known = release if isinstance(release, Release) else None
    names = [name for name in sorted(system.environ) if name.startswith(FAMILIES)]
    if not names:
        return skipped("no variable of torch or NCCL is set")
    found = [each for name in names if (each := unread(name, system.environ, known))]
    if not found:
        return ok(f"{len(names)} variables of torch or NCCL are set, and all of them exist")
    return bad(
        "; ".join(f"{each.name}: {each.why}" for each in found),
        "; ".join(f"{each.name}: {each.instead}" for each in found),
        *((each.name, "unread") for each in found),
    )


UNKNOWN_VARIABLES = check("unknown-variables", _look_at_unknown_variables)
