"""Are there variables that nobody reads?

NCCL_TIMEOUT stands in many guides and never existed; a missing letter switches nothing on and raises nothing. Known
names are those of torch up to 2.14 and of every release of NCCL; plug-ins and clusters have their own, so an unknown
NCCL_ name is only reported where it is spelled almost like a real one.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import release_of
from forkpoint.doctor.system import System
from forkpoint.launch_env.names import FAMILIES, unread
from forkpoint.launch_env.release import Release


def look(system: System) -> CheckResult:
    release = release_of(system)
    known = release if isinstance(release, Release) else None
    names = [name for name in sorted(system.environ) if name.startswith(FAMILIES)]
    if not names:
        return skipped("no variable of torch or NCCL is set")
    found = [each for name in names if (each := unread(name, system.environ, known))]
    if not found:
        return ok(f"{len(names)} look like torch's or NCCL's, and all of them are")
    return bad(
        "; ".join(f"{each.name}: {each.why}" for each in found),
        "; ".join(f"{each.name}: {each.instead}" for each in found),
        *((each.name, "unread") for each in found),
    )


def inject(system: System) -> System:
    return with_environ(system, {"NCCL_TIMEOUT": "1800"})


CHECK = Check(
    name="unknown-variables",
    title="variables that nobody reads",
    why="Somebody believes that a setting is in force which is not: a timeout, a recorder, a network interface.",
    look=look,
    inject=inject,
)
