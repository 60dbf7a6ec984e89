"""Will a timeout leave a dump?

Three gates are looked at: dump on timeout (off by default up to 2.6), the older name of the buffer size, which alone
decides whether a file is written, and blocking wait, under which no watchdog runs that could write one.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import DUMP, ENTRIES, OLD_BUFFER, blocking_wait, dumps_on_timeout, file_gate


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    dumps, gate = dumps_on_timeout(system.environ, release), file_gate(system.environ, release)
    if blocking := blocking_wait(system.environ):
        return bad(f"{blocking} is on: no watchdog runs, so no timeout leaves a dump", f"unset {blocking}")
    if not dumps.value:
        by = f"{dumps.name} says no" if dumps.name else f"off by default in torch {release}"
        return bad(f"no dump on timeout: {by}", f"export {DUMP}=1")
    if gate.value <= 0:
        by = f"{OLD_BUFFER}=0" if gate.name else f"torch {release} without {OLD_BUFFER}"
        return bad(f"no file is written: {by} shuts the part that writes it", f"export {OLD_BUFFER}={ENTRIES}")
    return ok(f"a timeout leaves a dump, by {dumps.name or f'the default of torch {release}'}")


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.13.0"), {DUMP: "0"})


CHECK = Check(
    name="recorder-dump",
    title="dump on timeout",
    why="What the recorder holds in memory dies with the process unless a timeout makes it write.",
    look=look,
    inject=inject,
)
