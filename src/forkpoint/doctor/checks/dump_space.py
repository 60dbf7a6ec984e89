"""Is there room for the dumps of all ranks of this node?

Each rank writes up to its buffer's number of entries; with stacks about 1 kB each (measured: 0.2 to 0.8 kB). A node has
8 ranks where nothing tells otherwise.
"""

import posixpath

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_disk, with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import Disk, NoAnswer, System
from forkpoint.launch_env.recorder import OLD_PREFIX, PREFIX, dump_prefix, entries_kept

BYTES_PER_ENTRY = 1000
_RANKS = 8


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    folder = posixpath.dirname(dump_prefix(system.environ, release).value)
    entries = entries_kept(system.environ, release).value
    if entries <= 0:
        return skipped("the recorder is off")
    disk = system.disk(folder)
    if isinstance(disk, NoAnswer):
        return skipped(disk.why)
    told = system.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = int(told) if told.isdecimal() else _RANKS
    needed = ranks * entries * BYTES_PER_ENTRY
    fix = f"free some of {disk.mount}, or let {PREFIX} point elsewhere"
    if disk.free < needed:
        return bad(f"{folder}: {disk.free >> 20} MiB are free, {ranks} dumps may need {needed >> 20}", fix)
    if disk.inodes and disk.inodes_free < ranks:
        return bad(f"{folder}: {disk.inodes_free} inodes are free on {disk.mount}, for {ranks} dumps", fix)
    return ok(f"{folder}: {disk.free >> 20} MiB are free, {ranks} dumps may need {max(1, needed >> 20)}")


def inject(system: System) -> System:
    full = Disk("/full", "ext4", 1 << 30, 0, 1000, 1000)
    prefix = {PREFIX: "/full/rank_", OLD_PREFIX: "/full/rank_", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
    return with_disk(with_environ(with_torch(system, "2.13.0"), prefix), "/full", full)


CHECK = Check(
    name="dump-space",
    title="room for every rank's dump",
    why="A dump that does not fit is cut off: the rank's last calls, which matter most, are missing.",
    look=look,
    inject=inject,
)
