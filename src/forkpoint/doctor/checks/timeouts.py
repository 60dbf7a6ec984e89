"""Do the timeouts that the environment sets fit together?

The timeout of a collective is not among them: it is an argument in the program (10 minutes for NCCL since 2.2, 30
before, if nobody says otherwise). A dump must be written before the heartbeat ends the process and before a launcher
kills it; InfiniBand must give up before the watchdog does, or a dead link is told as a plain timeout.
"""

from collections.abc import Iterator, Mapping

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import release_of, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import parse_number
from forkpoint.launch_env.release import Release

_HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
_DUMP = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
_IB, _IB_RETRIES = "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"
_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_SHORTEST_DUMP_MS = 12_000
"""Dumps of 2,000 to 20,000 entries with stacks took 6 to 12 s on two cores."""
_SHORTEST_GRACE_S = 30
"""Torchrun's own; dumps need longer already."""
_COLLECTIVE_S = 600


def look(system: System) -> CheckResult:
    release = release_of(system)
    if isinstance(release, CheckResult):
        return release
    heartbeat = _number(system.environ, _HEARTBEAT, _default_heartbeat(release))
    dump = _number(system.environ, _DUMP, 15_000 if release >= Release(2, 8) else 60_000)
    problems = list(_problems(system.environ, heartbeat, dump))
    details = (("heartbeat", f"{heartbeat} s"), ("dump", f"{dump} ms"))
    if problems:
        return bad("; ".join(says for says, _ in problems), "; ".join(fix for _, fix in problems), *details)
    says = f"heartbeat {heartbeat} s, dump {dump / 1000:g} s; the timeout of collectives is set in the program"
    return ok(says, *details)


def _problems(environ: Mapping[str, str], heartbeat_s: int, dump_ms: int) -> Iterator[tuple[str, str]]:
    if dump_ms < _SHORTEST_DUMP_MS:
        yield f"{_DUMP}={dump_ms} is too short for a dump with stacks", f"unset {_DUMP}"
    if heartbeat_s * 1000 <= dump_ms:
        yield (
            f"{_HEARTBEAT}={heartbeat_s} ends the process before its dump of {dump_ms / 1000:g} s is due",
            f"unset {_HEARTBEAT}",
        )
    if (wait := _infiniband_s(environ)) is not None and wait >= _COLLECTIVE_S:
        shown = "for ever" if wait == float("inf") else f"{wait:.0f} s"
        yield f"{_IB}={environ[_IB]} waits {shown} on a dead link, longer than collectives do", f"unset {_IB}"
    grace = parse_number(environ.get(_GRACE, ""))
    if grace is not None and grace < _SHORTEST_GRACE_S:
        yield f"{_GRACE}={grace} lets torchrun kill ranks that still write", f"export {_GRACE}=90"


def _infiniband_s(environ: Mapping[str, str]) -> float | None:
    """4.096 us times two to the power of the setting, for each try; None where it is not set."""
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


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.13.0"), {_HEARTBEAT: "10"})


CHECK = Check(
    name="timeouts",
    title="timeouts fit together",
    why="A process that is ended while it writes leaves half a dump; one that waits longer than its watchdog misleads.",
    look=look,
    inject=inject,
)
