"""Do torch, NCCL and the driver fit?

A driver older than the CUDA that torch was built with (CUDA 11: 450, 12: 525, 13: 580, by the release notes' table of
minor version compatibility), libraries that do not match the kernel module, or an NCCL other than the one torch asks
for, fail at the first collective or in ways that look like the network. Between nodes: `forkpoint doctor --compare`.
"""

import re

from forkpoint.doctor.check import Check, CheckResult, Status, bad, ok
from forkpoint.doctor.overlay import with_files, with_packages
from forkpoint.doctor.system import System

_MODULE = "/proc/driver/nvidia/version"
_MODULE_VERSION = re.compile(r"NVRM version:.*?\s(?P<version>\d{3}\.\d+(?:\.\d+)?)\s")
_LIBRARY = re.compile(r"libcuda\.so\.(?P<version>\d{3}\.\d+(?:\.\d+)?)")
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
_CUDA_IN_VERSION = re.compile(r"\+cu(?P<major>\d{2})\d")
_CUDA_REQUIRED = re.compile(r"nvidia-(?:cuda-runtime|nccl)-cu(?P<major>\d{2})\b")
_NCCL_REQUIRED = re.compile(r"(?P<name>nvidia-nccl-cu\d{2})\s*\(?==\s*(?P<version>[\d.]+)")
_NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}


def look(system: System) -> CheckResult:
    torch = system.package("torch")
    driver = _driver(system)
    nccl = next(((name, found.version) for name in _NCCL_PACKAGES if (found := system.package(name))), None)
    cuda = _cuda(torch.version, torch.requires) if torch else None
    known = (("torch", torch.version if torch else None), ("NCCL", nccl[1] if nccl else None), ("driver", driver))
    details = tuple((name, version) for name, version in known if version)
    shown = ", ".join(f"{name} {version}" for name, version in details) or "neither torch nor a driver was found"
    problem = _module_differs(system, driver) or _driver_too_old(cuda, driver)
    if problem is None and torch and nccl:
        problem = _other_nccl(torch.requires, *nccl)
    if problem:
        return bad(f"{problem[0]} ({shown})", problem[1], *details)
    if not torch or not driver or cuda is None:
        return CheckResult(Status.SKIPPED, f"nothing to fit together: {shown}", details=details)
    return ok(shown, *details)


def _driver(system: System) -> str | None:
    match = _MODULE_VERSION.search(system.read(_MODULE) or "")
    return match["version"] if match else None


def _cuda(version: str, requires: tuple[str, ...]) -> str | None:
    """The major version torch was built with; wheels of the default index say it in what they require."""
    match = _CUDA_IN_VERSION.search(version) or next(filter(None, map(_CUDA_REQUIRED.search, requires)), None)
    return match["major"] if match else None


def _module_differs(system: System, driver: str | None) -> tuple[str, str] | None:
    names = [name for folder in _LIBRARY_FOLDERS for name in system.names(folder)]
    libraries = sorted({match["version"] for name in names if (match := _LIBRARY.fullmatch(name))})
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
    return f"torch asks for {name} {wanted[name]}, installed is {version}", f"pip install {name}=={wanted[name]}"


def inject(system: System) -> System:
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.129.06  Thu May 12 22:52:02 UTC 2022\n"
    return with_packages(with_files(system, {_MODULE: old}), {"torch": "2.13.0+cu130"})


CHECK = Check(
    name="versions",
    title="torch, NCCL and driver",
    why="Versions that do not fit fail late and look like something else; nodes that differ fail together.",
    look=look,
    inject=inject,
)
