"""What several checks of settings ask: which torch this is about."""

from forkpoint.doctor.check import CheckResult, skipped
from forkpoint.doctor.overlay import with_packages
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import FIRST
from forkpoint.launch_env.release import Release, parse_release


def release_of(system: System) -> Release | CheckResult:
    """The release that runs here, or why settings cannot be judged by it."""
    torch = system.package("torch")
    release = parse_release(torch.version) if torch else None
    if release is None:
        return skipped(
            "no torch was found to judge by",
            "run it in the job's Python environment, or name a running process of the job: forkpoint doctor --job PID",
        )
    return release


def recording_release(system: System) -> Release | CheckResult:
    """As above, of releases that have a recorder."""
    release = release_of(system)
    if isinstance(release, Release) and release < FIRST:
        return skipped(f"torch {release} has no flight recorder; the first one is in {FIRST}")
    return release


def with_torch(system: System, version: str) -> System:
    """For injections: a fault that exists in some releases only."""
    return with_packages(system, {"torch": version})
