"""Versions that must be compatible, and the clock."""

import re
from dataclasses import replace

from forkpoint.doctor.report import CheckResult, CheckStatus, DoctorCheck, bad, ok, skipped
from forkpoint.doctor.system import KernelClock, Ran, System, Unanswered, with_files, with_outputs, with_packages

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


def _inject_versions(system: System) -> System:
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.129.06  Thu May 12 22:52:02 UTC 2022\n"
    return with_packages(with_files(system, {_DRIVER_MODULE: old}), {"torch": "2.13.0+cu130"})


VERSIONS = DoctorCheck(
    name="versions",
    title="torch, NCCL and driver",
    why="Incompatible versions fail late and look like something else; nodes must not differ.",
    look=_look_at_versions,
    inject=_inject_versions,
)


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


def _inject_clock(system: System) -> System:
    adrift = Ran(0, "System time     : 4.207316875 seconds slow of NTP time\nLeap status     : Normal\n")
    unkept = replace(system, clock=lambda: KernelClock(synchronised=False, max_error_s=16.0))
    return with_outputs(unkept, {"chronyc": adrift})


CLOCK = DoctorCheck(
    name="clock",
    title="clock synchronised",
    why="Evidence of several nodes is put in order by their clocks; with a wrong clock a victim looks like the first rank to fail.",
    look=_look_at_clock,
    inject=_inject_clock,
)
