"""Is the flight recorder on?

Releases 2.2 to 2.10 record nothing unless told, and 2.7 to 2.10 write dump files all the same: empty ones, beside a log
line that claims 2000 entries.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import BUFFER, ENTRIES, OLD_BUFFER, buffer_names, entries_kept
from forkpoint.launch_env.release import Release

_WRITES_EMPTY = (Release(2, 7), Release(2, 10))


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    kept = entries_kept(system.environ, release)
    details = (("entries", str(kept.value)),)
    by = kept.name or f"the default of torch {release}"
    if kept.value > 0:
        return ok(f"on: {kept.value} entries by {by}", *details)
    says = f"off: {by} is 0"
    if kept.name is None and _WRITES_EMPTY[0] <= release <= _WRITES_EMPTY[1]:
        says = f"off: torch {release} with nothing set writes dumps without entries"
    lines = " ".join(f"{name}={ENTRIES}" for name in buffer_names(release))
    return bad(says, f"export {lines}", *details)


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.9.1"), {}, without=(BUFFER, OLD_BUFFER))


CHECK = Check(
    name="recorder-on",
    title="flight recorder on",
    why="Without it a timeout leaves no record of what each rank called, and the rank to blame cannot be named.",
    look=look,
    inject=inject,
)
