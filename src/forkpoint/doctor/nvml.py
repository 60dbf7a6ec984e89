"""GPUs as NVML reports them, and GPUs and adapters on the PCI bus; with what the checks of GPUs share."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from forkpoint.doctor.report import CheckResult, skipped
from forkpoint.doctor.system import RunProgram, System, Unanswered
from forkpoint.evidence.machine.places import normal_bus

# ---------------------------------------------------------------------------------------------------------------------
# What NVML reports about the GPUs of this machine. Read once for all checks, in a separate process.

READ_LIMIT_S = 10.0
"""Longer than for other programs: without persistence the driver initialises every GPU first, which takes seconds."""
INSTALL = "pip install 'forkpoint[doctor]'"

_READER = Path(__file__).with_name("nvml_reader.py")
_IDLE = 0x1


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """Lifetime counters of one NVLink; None if the driver does not count."""

    replay: int | None = None
    recovery: int | None = None
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    number: int
    active: bool
    before: LinkErrors
    after: LinkErrors
    """The same a second later."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. None: this GPU or this driver does not report it."""

    index: int
    name: str
    bus_id: str | None = None
    lost: str | None = None
    """NVML's error for this GPU; then nothing else is known about it."""
    errors: tuple[str, ...] = ()
    """NVML's errors for single queries, except "not supported"."""
    persistence: bool | None = None
    ecc: bool | None = None
    uncorrected: int | None = None
    """Memory errors that ECC could not correct, since the driver was loaded or the GPU reset."""
    uncorrected_ever: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pages_pending: bool | None = None
    recovery_action: int | None = None
    temperature: int | None = None
    hottest: int | None = None
    """The highest temperature at which it may run."""
    margin: int | None = None
    """Degrees left until it slows down, which newer drivers report instead of a limit."""
    reasons: tuple[int, int] | None = None
    """Why clocks are low, as NVML's bits, now and a second later."""
    links: tuple[NvLink, ...] = ()
    busy: int | None = None
    """Percent of recent time in which a kernel ran. An NCCL kernel that waits for its peers counts as running."""
    pids: tuple[int, ...] = ()
    """Processes that compute on it, as pids of the host."""

    @property
    def label(self) -> str:
        return f"GPU {self.index} ({self.bus_id})" if self.bus_id else f"GPU {self.index}"

    @property
    def idle(self) -> bool:
        """Its clocks are low because it has nothing to do, in either read."""
        return self.reasons is not None and bool((self.reasons[0] | self.reasons[1]) & _IDLE)


@dataclass(frozen=True, slots=True)
class Nvml:
    driver: str
    gpus: tuple[Gpu, ...]

    @property
    def readable(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.lost is None)


@dataclass(frozen=True, slots=True)
class DriverStuck(Unanswered):
    """The driver is loaded but does not answer, or answers with a failure: that itself is bad."""


def read_nvml(run: RunProgram) -> Nvml | Unanswered:
    """`-P`: modules beside the reader must not shadow libraries of the same name."""
    ran = run((sys.executable, "-P", str(_READER)), READ_LIMIT_S)
    if isinstance(ran, Unanswered):
        return DriverStuck(f"NVML gave no answer: {ran.why}", "nvidia-smi -L")
    try:
        return parse_nvml(json.loads(ran.stdout))
    except ValueError:
        return DriverStuck(f"reading NVML ended with status {ran.returncode} and no answer", "nvidia-smi -L")


def parse_nvml(document: Mapping[str, Any]) -> Nvml | Unanswered:
    if document.get("missing") == "driver":
        return Unanswered("no NVIDIA driver is loaded here, or it was not given to this container")
    if "missing" in document:
        return Unanswered(f"{document['missing']} is not installed", INSTALL)
    if "failed" in document:
        return DriverStuck(f"NVML could not be started: {document['failed']}", "nvidia-smi -L")
    return Nvml(str(document["driver"]), tuple(_gpu(row) for row in document["gpus"]))


def _gpu(row: Mapping[str, Any]) -> Gpu:
    later: Mapping[str, Any] = row.get("later", {})
    reasons = [row.get("reasons"), later.get("reasons")]
    paired = {
        "name": row.get("name") or "GPU",
        "bus_id": normal_bus(row["bus_id"]) if row.get("bus_id") else None,
        "reasons": None if None in reasons else reasons,
        "pids": row.get("pids") or (),
        "links": _links(row.get("links", ()), later.get("links", ())),
    }
    return msgspec.convert({**row, **paired}, Gpu, strict=False)  # NVML's flags are numbers


def _links(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A link that is gone a second later is not active."""
    later = [*after, *({} for _ in before[len(after) :])]
    return [
        {"number": n, "active": bool(one.get("active") and two.get("active")), "before": one, "after": two}
        for n, (one, two) in enumerate(zip(before, later, strict=False))
    ]


# ---------------------------------------------------------------------------------------------------------------------
# GPUs and network adapters on the PCI bus, from sysfs.

DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_MELLANOX = "0x15b3:"
_DISPLAY = ("0x0300", "0x0302")
"""VGA and 3D controllers; audio and USB parts of a graphics card have other classes."""
_NETWORK = ("0x0200", "0x0207")
"""Ethernet and InfiniBand."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    address: str
    is_gpu: bool
    model: str
    """Vendor and device numbers: equal for equal hardware."""

    @property
    def folder(self) -> str:
        return f"{DEVICES}/{self.address}"

    @property
    def label(self) -> str:
        return f"{'GPU' if self.is_gpu else 'adapter'} {self.address}"


def find_devices(system: System) -> tuple[PciDevice, ...]:
    found = (_device(system, address) for address in system.names(DEVICES))
    return tuple(device for device in found if device)


def lacks_gpu(system: System) -> str | None:
    """Why GPUs cannot be checked here; None if there is a GPU or its driver."""
    there = any(device.is_gpu for device in find_devices(system)) or system.read("/proc/driver/nvidia/version")
    return None if there else "no NVIDIA GPU is on the PCI bus and no driver for one is loaded"


def lacks_mellanox(system: System) -> str | None:
    there = any(device.model.startswith(_MELLANOX) for device in find_devices(system))
    return None if there else "no Mellanox adapter is on the PCI bus"


def _device(system: System, address: str) -> PciDevice | None:
    kind = (system.read(f"{DEVICES}/{address}/class") or "").strip()
    vendor = (system.read(f"{DEVICES}/{address}/vendor") or "").strip()
    is_gpu = vendor == _NVIDIA and kind.startswith(_DISPLAY)
    if not is_gpu and not kind.startswith(_NETWORK):
        return None
    model = (system.read(f"{DEVICES}/{address}/device") or "").strip()
    return PciDevice(address, is_gpu, f"{vendor}:{model}")


# ---------------------------------------------------------------------------------------------------------------------
# What the checks of GPUs share.

UNTOLD = "neither the GPUs nor their driver report this"


def look_at_gpus(judge: Callable[[Sequence[Gpu]], CheckResult]) -> Callable[[System], CheckResult]:
    """A check of the readable GPUs. `gpu-present` reports the others."""

    def look(system: System) -> CheckResult:
        nvml = system.nvml()
        if isinstance(nvml, Unanswered):
            return skip_gpus(system, nvml)
        return judge(nvml.readable) if nvml.readable else skipped("NVML shows no GPU that can be read")

    return look


def skip_gpus(system: System, answer: Unanswered) -> CheckResult:
    """If there is no GPU, the user is not asked to install a library for it."""
    lacking = lacks_gpu(system)
    return skipped(lacking) if lacking else skipped(answer.why, answer.fix)


def labels(gpus: Sequence[Gpu]) -> str:
    return ", ".join(gpu.label for gpu in gpus)


def models(gpus: Sequence[Gpu]) -> str:
    """`8 x NVIDIA H200`, in the order of their first."""
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
