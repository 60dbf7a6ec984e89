"""Did the control group's limit on processes and threads refuse a new one? Any refusal is bad: a worker, a thread of NCCL
or a dump was not started.
"""

from forkpoint.doctor.cgroup import ROOT, cgroup_folders, keyed
from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.counters import read_number
from forkpoint.doctor.overlay import with_files
from forkpoint.doctor.system import System


def look(system: System) -> CheckResult:
    folders = [folder for folder in cgroup_folders(system, "pids") if system.read(f"{folder}/pids.current") is not None]
    if not folders:
        return skipped("no control group of this process counts processes")
    limits = [limit for folder in folders if (limit := read_number(system, f"{folder}/pids.max")) is not None]
    details = (("pids limit", str(min(limits, default="none"))),)
    refused = [(folder, count) for folder in folders if (count := _refused(system, folder))]
    if refused:
        return bad(
            "; ".join(f"{folder} refused {count} new processes or threads" for folder, count in refused),
            "raise the pids limit (`docker run --pids-limit`, kubelet's podPidsLimit, systemd's TasksMax), or fewer workers",
            *details,
        )
    return ok(f"no process or thread was refused; limit {details[0][1]}", *details)


def _refused(system: System, folder: str) -> int:
    return keyed(system.read(f"{folder}/pids.events")).get("max", 0)


def inject(system: System) -> System:
    return with_files(
        system,
        {
            f"{system.proc}/cgroup": "0::/\n",
            f"{ROOT}/pids.current": "1024\n",
            f"{ROOT}/pids.max": "1024\n",
            f"{ROOT}/pids.events": "max 3\n",
        },
    )


CHECK = Check(
    name="cgroup-pids",
    title="no process or thread was refused",
    why="`Resource temporarily unavailable`: a rank cannot start its loader workers or NCCL's threads.",
    look=look,
    inject=inject,
)
