"""Will the dumps still be there when somebody looks?

A tmpfs goes with a reboot and counts as memory; a container's own layer goes with the pod; both are where default paths
often land.
"""

import posixpath

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_disk, with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import Disk, NoAnswer, System
from forkpoint.launch_env.recorder import OLD_PREFIX, PREFIX, dump_prefix, prefix_names

_GOES = {
    "tmpfs": "memory: it goes with a reboot, and in a container with the pod",
    "ramfs": "memory: it goes with a reboot",
    "overlay": "the container's own layer: it goes with the container",
    "aufs": "the container's own layer: it goes with the container",
}
_SHARED = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cephfs", "fuse.ceph", "wekafs", "9p", "virtiofs", "efs"}


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    folder = posixpath.dirname(dump_prefix(system.environ, release).value)
    disk = system.disk(folder)
    if isinstance(disk, NoAnswer):
        return skipped(f"which disk holds {folder} cannot be told: {disk.why}")
    details = (("file system", disk.kind),)
    if disk.kind in _GOES:
        name = prefix_names(release)[0]
        fix = f"point {name} to a disk that outlives the job: a shared file system or a mounted volume"
        return bad(f"{folder} is on {disk.kind}, {_GOES[disk.kind]}", fix, *details)
    reach = "shared" if disk.kind in _SHARED else "of this node: fetch it from here, `forkpoint collect` does"
    return ok(f"{folder} is on {disk.kind} at {disk.mount}, {reach}", *details)


def inject(system: System) -> System:
    there = {PREFIX: "/dev/shm/dumps/rank_", OLD_PREFIX: "/dev/shm/dumps/rank_"}  # noqa: S108 - a bad choice is meant
    memory = Disk("/dev/shm", "tmpfs", 64 << 20, 64 << 20, 0, 0)  # noqa: S108 - as above
    return with_disk(with_environ(with_torch(system, "2.13.0"), there), "/dev/shm/dumps", memory)  # noqa: S108 - as above


CHECK = Check(
    name="recorder-path-survives",
    title="dump folder outlives the job",
    why="Pods and node-local scratch are cleaned before anyone looks; the dumps then never existed.",
    look=look,
    inject=inject,
)
