"""GPUs and network adapters on the PCI bus, from sysfs."""

from dataclasses import dataclass

from forkpoint.doctor.system import System

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
    """Why nothing can be said of GPUs here; None where there are some, or their driver is."""
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
