"""Is the recorder's buffer of a size that helps?

The size counts calls, not bytes. Guides that give it in bytes (2097152) ask for two million: about 0.8 kB of host
memory each once full, and a dump that is not written in its 15 seconds (2,000 to 20,000 took 6 to 12 s on two cores).
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import BUFFER, ENTRIES, OLD_BUFFER, entries_kept

_TOO_MANY = 100_000
"""Five times what was measured to fill most of the time a dump has."""
_TOO_FEW = 100
"""Less than one step of most jobs: what ranks did before they parted is gone."""
_KB_PER_ENTRY = 0.8


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    kept = entries_kept(system.environ, release)
    details = (("entries", str(kept.value)),)
    if kept.value <= 0:
        return skipped("the recorder is off")
    if kept.value > _TOO_MANY:
        memory = kept.value * _KB_PER_ENTRY / 1024
        says = f"{kept.value} entries, not bytes: about {memory:.0f} MiB per rank, and too many to dump in time"
    elif kept.value < _TOO_FEW:
        says = f"{kept.value} entries are less than one step of most jobs"
    else:
        return ok(f"{kept.value} entries", *details)
    return bad(says, f"export {kept.name}={ENTRIES}, up to 20000 where a step issues many calls", *details)


def inject(system: System) -> System:
    as_bytes = {BUFFER: "2097152", OLD_BUFFER: "2097152"}
    return with_environ(with_torch(system, "2.13.0"), as_bytes)


CHECK = Check(
    name="recorder-buffer",
    title="flight recorder's size",
    why="Too few entries forget what mattered; millions cost gigabytes and the dump itself.",
    look=look,
    inject=inject,
)
