"""Do GPUs and network adapters run at the width and speed that they and their slot can do?

The most is what both ends can: the device and the port above it. An idle GPU lowers its link speed to save power, which
NVML documents, so of GPUs the speed counts only while NVML says that they work. Width is never lowered to save power.
"""

import re
from collections.abc import Iterator

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.nvml import Nvml
from forkpoint.doctor.overlay import with_files
from forkpoint.doctor.pci import DEVICES, PciDevice, find_devices
from forkpoint.doctor.system import System

_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s")
_WIDTH = re.compile(r"(\d+)")
_NO_WIDTH = (0, 63, 255)
"""What virtual machines show in place of a width."""


def look(system: System) -> CheckResult:
    devices = find_devices(system)
    if not devices:
        return skipped("no GPU and no network adapter is on the PCI bus")
    judged = [device for device in devices if _widths(system, device)]
    if not judged:
        return skipped("the PCI bus of this machine tells no link widths: it is a virtual machine's")
    working = _working_gpus(system)
    trouble = [said for device in judged for said in _slow(system, device, working)]
    details = (("PCIe links", "; ".join(_link(system, device) for device in judged)),)
    if trouble:
        return bad(
            "; ".join(trouble),
            "`lspci -vvv -s ADDRESS | grep -E 'LnkCap|LnkSta'`; the operator reseats the card or looks at riser and slot",
            *details,
        )
    return ok(f"{len(judged)} links are as wide and fast as both ends can", *details)


def _slow(system: System, device: PciDevice, working: frozenset[str]) -> Iterator[str]:
    widths = _widths(system, device)
    if widths and widths[0] < widths[1]:
        yield f"{device.label} runs x{widths[0]:g} of x{widths[1]:g}"
    speeds = _pair(system, device, "speed", _SPEED)
    if speeds and speeds[0] < speeds[1] and (not device.is_gpu or device.address in working):
        yield f"{device.label} runs {speeds[0]:g} of {speeds[1]:g} GT/s"


def _widths(system: System, device: PciDevice) -> tuple[float, float] | None:
    widths = _pair(system, device, "width", _WIDTH)
    return None if widths is None or set(widths) & set(_NO_WIDTH) else widths


def _pair(system: System, device: PciDevice, what: str, form: re.Pattern[str]) -> tuple[float, float] | None:
    """Now, and the most that the device and the port above it can do."""
    now = form.search(system.read(f"{device.folder}/current_link_{what}") or "")
    own = form.search(system.read(f"{device.folder}/max_link_{what}") or "")
    # The entry is a link into the tree of the bus, so that `..` is the port above the device.
    above = form.search(system.read(f"{device.folder}/../max_link_{what}") or "")
    if now is None or own is None:
        return None
    return float(now[1]), min(float(own[1]), float(above[1]) if above else float(own[1]))


def _link(system: System, device: PciDevice) -> str:
    widths = _widths(system, device)
    return f"{'GPU' if device.is_gpu else 'adapter'} {device.model} x{widths[0] if widths else 0:g}"


def _working_gpus(system: System) -> frozenset[str]:
    """Addresses of GPUs whose clocks are not low for want of work."""
    nvml = system.nvml()
    gpus = nvml.readable if isinstance(nvml, Nvml) else ()
    return frozenset(gpu.bus_id for gpu in gpus if gpu.bus_id and gpu.reasons is not None and not gpu.idle)


def inject(system: System) -> System:
    folder = f"{DEVICES}/0000:3b:00.0"
    texts = {"vendor": "0x10de", "class": "0x030200", "device": "0x2335", "current_link_width": "8"}
    return with_files(
        system,
        {f"{folder}/{name}": f"{text}\n" for name, text in {**texts, "max_link_width": "16"}.items()},
    )


CHECK = Check(
    name="pcie-link",
    title="PCIe links run at full width and speed",
    why="A GPU or adapter at half width is the straggler of every step that crosses it.",
    look=look,
    inject=inject,
)
