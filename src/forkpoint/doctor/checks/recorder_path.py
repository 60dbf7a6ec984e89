"""Can dumps be written where torch will put them?

Torch makes no folder for a prefix that was set: the file then cannot be opened, and the log says so when it is too late.
"""

import posixpath

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import OLD_PREFIX, PREFIX, dump_prefix


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    prefix = dump_prefix(system.environ, release)
    by = prefix.name or f"the default of torch {release}"
    details = (("prefix", prefix.value),)
    if not posixpath.isabs(prefix.value):
        return bad(
            f"{by} is {prefix.value!r}, which is no absolute path: dumps land where each rank happens to run",
            f"export {by}=/shared/dumps/$JOB/{posixpath.basename(prefix.value) or 'rank_'}",
            *details,
        )
    folder = posixpath.dirname(prefix.value)
    if system.stat(folder) is None and prefix.name is not None:
        return bad(f"{folder} is not there ({by}); torch does not make it", f"mkdir -p {folder}", *details)
    there = _nearest(system, folder)
    if not system.may_write(there):
        return bad(f"{there} may not be written ({by})", f"ls -ld {there}, or choose another folder", *details)
    return ok(f"dumps go to {prefix.value}RANK, by {by}", *details)


def _nearest(system: System, folder: str) -> str:
    """Of torch's own folder, the part that exists: it makes the rest."""
    while system.stat(folder) is None and folder != "/":
        folder = posixpath.dirname(folder)
    return folder


def inject(system: System) -> System:
    nowhere = {PREFIX: "/nonexistent/dumps/rank_", OLD_PREFIX: "/nonexistent/dumps/rank_"}
    return with_environ(with_torch(system, "2.13.0"), nowhere)


CHECK = Check(
    name="recorder-path",
    title="dump folder writable",
    why="A dump that cannot be written is lost with the process, on the one occasion it was kept for.",
    look=look,
    inject=inject,
)
