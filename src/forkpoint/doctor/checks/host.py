"""What this machine gives the job: shared memory and ulimits, versions that must be compatible, and the clock."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.doctor.report import CheckResult, CheckStatus, bad, check, ok, skipped
from forkpoint.doctor.system import (
    Ran,
    System,
    Unanswered,
)

SHM = "/dev/shm"  # noqa: S108 - looked at, never written
DOCKER_DEFAULT = 64 << 20
FREE_AT_LEAST = 1 << 30
_SHM_PREFIXES = ("nccl-", "torch_", "sem.loky-", "psm_")
"""Names of NCCL's and Python's files."""
_SHOWN_LEFTOVERS = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    name: str
    size: int
    uid: int


def _look_at_shared_memory(system: System) -> CheckResult:
    """Is there room in /dev/shm, and who owns the files in it?

    Loader workers pass batches through it, and NCCL its buffers within a node. Docker's default is 64 MB. At least 1 GB
    should be free (NCCL's troubleshooting guide). Leftovers are named with their owner and must not be deleted blindly: a
    file that no visible process has mapped may belong to another container.
    """
    disk = system.disk(SHM)
    if isinstance(disk, Unanswered):
        return skipped(disk.why)
    leftovers = _leftovers(system)
    details = ((SHM, _mib_or_gib(disk.total)),)
    if disk.total <= DOCKER_DEFAULT:
        return bad(
            f"{SHM} is {_mib_or_gib(disk.total)}, which is Docker's default",
            "`docker run --shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` on /dev/shm",
            *details,
        )
    if disk.free < FREE_AT_LEAST:
        return bad(
            f"{_mib_or_gib(disk.free)} of {_mib_or_gib(disk.total)} are free{_told_leftovers(leftovers)}",
            _fix_leftovers(leftovers),
            *details,
        )
    return ok(f"{_mib_or_gib(disk.free)} of {_mib_or_gib(disk.total)} are free{_told_leftovers(leftovers)}", *details)


def _leftovers(system: System) -> tuple[Leftover, ...]:
    """Files of NCCL and Python that no process has mapped; none if not all processes can be seen."""
    files = [name for name in system.names(SHM) if name.startswith(_SHM_PREFIXES)]
    if not files:
        return ()
    mapped: set[str] = set()
    for process in system.processes():
        maps = system.read(f"/proc/{process.pid}/maps")
        if maps is None and system.names(f"/proc/{process.pid}"):
            return ()
        mapped.update(name for name in files if f"{SHM}/{name}" in (maps or ""))
    return tuple(_leftover_facts(system, [name for name in files if name not in mapped]))


def _leftover_facts(system: System, names: Sequence[str]) -> Iterator[Leftover]:
    for name in names:
        facts = system.stat(f"{SHM}/{name}")
        if facts and not facts.is_folder:
            yield Leftover(name, facts.size, facts.uid)


def _told_leftovers(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return ""
    largest = sorted(leftovers, key=lambda one: -one.size)[:_SHOWN_LEFTOVERS]
    names = ", ".join(f"{one.name} ({_mib_or_gib(one.size)}, user {one.uid})" for one in largest)
    return f"; {len(leftovers)} files that no process seen here has open: {names}"


def _fix_leftovers(leftovers: Sequence[Leftover]) -> str:
    if not leftovers:
        return "find who fills it: `du -ah /dev/shm | sort -h | tail` and `fuser -v /dev/shm/*`; or give the job more of it"
    return (
        "ask `fuser -v /dev/shm/*` as root on the host first: removing nccl-* files of a running job, whoever owns it, "
        "breaks it. With no job on the node, their owner removes them"
    )


def _mib_or_gib(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"


SHARED_MEMORY = check("shared-memory", _look_at_shared_memory)


LOGIN_DEFAULT = 1024
_STACK_MENDED = (2, 28)
_LIMIT_LINE = re.compile(r"(Max [a-z ]+?) {2,}(\w+) +(\w+)")
_LIMIT_NAMES = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max stack size": "stack",
    "Max processes": "nproc",
}
_UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Ulimit:
    soft: int | None
    """None is unlimited."""
    printed: str


def _look_at_limits(system: System) -> CheckResult:
    """Limits of the process (ulimit): locked memory, open files, stack.

    Locked memory must be unlimited with RDMA: registering a buffer locks it (NCCL's troubleshooting guide). 1024 open files
    is the default of a login shell, and loader workers use it up; the store on rank 0 and gloo keep one connection to each
    rank, so at least twice the world size is needed. With an unlimited stack NCCL before 2.28 starts its threads with 2 MB,
    which overflow at start-up. The number of processes is only compared between nodes.
    """
    limits = _read_limits(system.read(f"{system.proc}/limits") or "")
    if not limits:
        return skipped(f"{system.proc}/limits cannot be read")
    trouble = list(_limit_trouble(system, limits))
    details = tuple((name, limit.printed) for name, limit in limits.items())
    if trouble:
        return bad("; ".join(says for says, _ in trouble), "; ".join(fix for _, fix in trouble), *details)
    rdma = "" if _has_rdma(system) else " (memlock is not judged: no RDMA adapter is here)"
    return ok(f"{', '.join(f'{name} {value}' for name, value in details)}{rdma}", *details)


def _read_limits(text: str) -> dict[str, Ulimit]:
    found = {match[1]: match[2] for line in text.splitlines() if (match := _LIMIT_LINE.match(line))}
    return {
        name: Ulimit(None if found[title] == _UNLIMITED else int(found[title]), found[title])
        for title, name in _LIMIT_NAMES.items()
        if title in found
    }


def _limit_trouble(system: System, limits: Mapping[str, Ulimit]) -> Iterator[tuple[str, str]]:
    """What is wrong, and the fix."""
    memlock = limits.get("memlock")
    if memlock and memlock.soft is not None and _has_rdma(system):
        yield (
            f"only {memlock.soft >> 10} kB may be locked, and RDMA locks every buffer it registers",
            "`ulimit -l unlimited`: limits.conf, LimitMEMLOCK=infinity of slurmd or containerd, `--ulimit memlock=-1`",
        )
    files, world = limits.get("nofile"), system.environ.get("WORLD_SIZE", "")
    needed = max(LOGIN_DEFAULT + 1, 2 * int(world) if world.isdecimal() else 0)
    if files and files.soft is not None and files.soft < needed:
        yield (
            f"{files.soft} files may be open, at least {needed} are needed",
            "`ulimit -n 131072` before the job starts",
        )
    stack, nccl = limits.get("stack"), _nccl_version(system)
    if stack and stack.soft is None and nccl and nccl < _STACK_MENDED:
        yield f"the stack is unlimited, with which NCCL {nccl[0]}.{nccl[1]} may crash", "`ulimit -s 8192`, or NCCL 2.28"


def _has_rdma(system: System) -> bool:
    return bool(system.names("/sys/class/infiniband"))


def _nccl_version(system: System) -> tuple[int, int] | None:
    found = system.package("nvidia-nccl-cu13") or system.package("nvidia-nccl-cu12")
    parts = found.version.split(".") if found else []
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(part.isdecimal() for part in parts[:2]) else None


LIMITS = check("limits", _look_at_limits)


# ---------------------------------------------------------------------------------------------------------------------
# Versions that must be compatible, and the clock.

_DRIVER_MODULE = "/proc/driver/nvidia/version"
_MODULE_VERSION = re.compile(r"NVRM version:.*?\s(?P<version>\d{3}\.\d+(?:\.\d+)?)\s")
_CUDA_LIBRARY = re.compile(r"libcuda\.so\.(?P<version>\d{3}\.\d+(?:\.\d+)?)")
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
_CUDA_IN_VERSION = re.compile(r"\+cu(?P<major>\d{2})\d")
_CUDA_REQUIRED = re.compile(r"nvidia-(?:cuda-runtime|nccl)-cu(?P<major>\d{2})\b")
_NCCL_REQUIRED = re.compile(r"(?P<name>nvidia-nccl-cu\d{2})\s*\(?==\s*(?P<version>[\d.]+)")
_NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}


def _look_at_versions(system: System) -> CheckResult:
    """Are torch, NCCL and the driver compatible?

    A driver older than the CUDA that torch was built with (CUDA 11: 450, 12: 525, 13: 580, by the release notes' table of
    minor version compatibility), libraries that do not match the kernel module, or an NCCL other than the one torch requires
    fail at the first collective, or look like a network fault. Between nodes: `forkpoint doctor --compare`.
    """
    torch = system.package("torch")
    driver = _driver_version(system)
    nccl = next(((name, found.version) for name in _NCCL_PACKAGES if (found := system.package(name))), None)
    cuda = _cuda_of_torch(torch.version, torch.requires) if torch else None
    known = (("torch", torch.version if torch else None), ("NCCL", nccl[1] if nccl else None), ("driver", driver))
    details = tuple((name, version) for name, version in known if version)
    shown = ", ".join(f"{name} {version}" for name, version in details) or "neither torch nor a driver was found"
    problem = _module_differs(system, driver) or _driver_too_old(cuda, driver)
    if problem is None and torch and nccl:
        problem = _other_nccl(torch.requires, *nccl)
    if problem:
        return bad(f"{problem[0]} ({shown})", problem[1], *details)
    if not torch or not driver or cuda is None:
        return CheckResult(CheckStatus.SKIPPED, f"nothing to compare: {shown}", details=details)
    return ok(shown, *details)


def _driver_version(system: System) -> str | None:
    match = _MODULE_VERSION.search(system.read(_DRIVER_MODULE) or "")
    return match["version"] if match else None


def _cuda_of_torch(version: str, requires: tuple[str, ...]) -> str | None:
    """The major version torch was built with; wheels of the default index show it only in their requirements."""
    match = _CUDA_IN_VERSION.search(version) or next(filter(None, map(_CUDA_REQUIRED.search, requires)), None)
    return match["major"] if match else None


def _module_differs(system: System, driver: str | None) -> tuple[str, str] | None:
    names = [name for folder in _LIBRARY_FOLDERS for name in system.names(folder)]
    libraries = sorted({match["version"] for name in names if (match := _CUDA_LIBRARY.fullmatch(name))})
    if driver is None or not libraries or driver in libraries:
        return None
    return (
        f"the kernel module is {driver}, libcuda is {', '.join(libraries)}",
        "the driver was updated under a running module: drain the node and reboot it",
    )


def _driver_too_old(cuda: str | None, driver: str | None) -> tuple[str, str] | None:
    oldest = _OLDEST_DRIVER.get(cuda or "")
    if oldest is None or driver is None or int(driver.partition(".")[0]) >= oldest:
        return None
    return (
        f"torch is built with CUDA {cuda}, which needs a driver of {oldest} or newer",
        f"install a driver of {oldest} or newer, or a torch built with an older CUDA",
    )


def _other_nccl(requires: tuple[str, ...], name: str, version: str) -> tuple[str, str] | None:
    wanted = {match["name"]: match["version"] for line in requires if (match := _NCCL_REQUIRED.match(line))}
    if name not in wanted or wanted[name] == version:
        return None
    return f"torch requires {name} {wanted[name]}, installed is {version}", f"pip install {name}=={wanted[name]}"


VERSIONS = check("versions", _look_at_versions)


_CHRONY_OFFSET = re.compile(r"^System time\s*:\s*(?P<offset>[\d.]+) seconds (?P<way>fast|slow)", re.MULTILINE)
_CHRONY_LEAP = re.compile(r"^Leap status\s*:\s*(?P<status>.+)$", re.MULTILINE)
_SYNCHRONISED = re.compile(r"^\s*System clock synchronized: (?P<yes>yes|no)", re.MULTILINE)
_NTP_SERVICE = re.compile(r"^\s*NTP service: (?P<state>\S+)", re.MULTILINE)
_TOO_FAR_S = 0.5
"""In one incident log lines of different ranks are closer together than this."""
_START_SERVICE = "start chronyd (or another time service), then look again: chronyc tracking"


def _look_at_clock(system: System) -> CheckResult:
    """Is the clock synchronised?

    Logs and dumps of several nodes are ordered by their clocks. A node whose clock is seconds off puts events in the wrong
    order. The kernel alone cannot say: under a hypervisor or PTP a good clock is reported as not synchronised. The time
    service knows best, then systemd, then the kernel.
    """
    told = system.run(("chronyc", "-n", "tracking"))
    if isinstance(told, Ran) and (result := _chrony(told.stdout)):
        return result
    told = system.run(("timedatectl",))
    if isinstance(told, Ran) and (result := _timedatectl(told.stdout)):
        return result
    clock = system.clock()
    if isinstance(clock, Unanswered):
        return skipped(f"the state of the clock is not known: {clock.why}")
    if clock.synchronised:
        return ok(f"the kernel's clock is synchronised, within {clock.max_error_s:.3g} s", ("synchronised", "yes"))
    return skipped(
        "the kernel reports no synchronisation, which may be due to a hypervisor or PTP; no time service answers here",
        "compare `date +%s.%N` with other nodes, or run `chronyc tracking` on the host",
    )


def _chrony(text: str) -> CheckResult | None:
    offset, leap = _CHRONY_OFFSET.search(text), _CHRONY_LEAP.search(text)
    if offset is None or leap is None:
        return None
    far = float(offset["offset"])
    if leap["status"].strip() == "Not synchronised":
        return bad("chronyd runs and has no source to follow", "chronyc sources -v", ("synchronised", "no"))
    if far > _TOO_FAR_S:
        return bad(f"{far:.3g} s {offset['way']} of its source", "chronyc sourcestats -v", ("synchronised", "no"))
    return ok(f"{far:.2g} s {offset['way']} of its source, by chronyd", ("synchronised", "yes"))


def _timedatectl(text: str) -> CheckResult | None:
    """Its "yes" comes from the kernel and counts; its "no" counts only if it also says that no time service is active."""
    yes, service = _SYNCHRONISED.search(text), _NTP_SERVICE.search(text)
    if yes is None:
        return None
    if yes["yes"] == "yes":
        return ok("synchronised, by timedatectl", ("synchronised", "yes"))
    if service and service["state"] == "inactive":
        return bad("not synchronised, and no time service is active", _START_SERVICE, ("synchronised", "no"))
    return None


CLOCK = check("clock", _look_at_clock)
