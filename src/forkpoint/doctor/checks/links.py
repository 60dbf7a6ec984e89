"""Links inside the node: NVLink and PCIe."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from forkpoint.doctor.checks.kernel import INTERVAL_S, Counter, recent_events, told
from forkpoint.doctor.nvml import (
    Gpu,
    LinkErrors,
    NvLink,
    Nvml,
    PciDevice,
    find_devices,
    lacks_gpu,
    look_at_gpus,
)
from forkpoint.doctor.nvml_reader import INTERVAL_S as NVML_INTERVAL_S
from forkpoint.doctor.report import CheckResult, check, judged, skipped
from forkpoint.doctor.system import System, Unanswered
from forkpoint.evidence.machine.kernel_lines import KernelEvent
from forkpoint.evidence.machine.kinds import KernelKind

EVENTS_AT_LEAST = 1
CRC_PER_SECOND = 100.0


def _judge_gpu_nvlink(gpus: Sequence[Gpu]) -> CheckResult:
    """NVLink: are all links up, and do their error counters move?

    Counters run for the life of the hardware and are rarely zero, so only the growth between two reads counts. Limits are
    those of NVIDIA's DCGM (common/DcgmGPUHardwareLimits.h): one replay or recovery between the reads
    (DCGM_LIMIT_MAX_LWLINK_ERROR), and CRC errors "only matter at rates of 100+ per second".
    """
    if not any(link.active for gpu in gpus for link in gpu.links):
        return skipped("no GPU has an active NVLink: there is none, or the fabric is not up")
    details = (
        ("active NVLinks", ", ".join(str(_active_links(gpu)) for gpu in gpus)),
        *((f"count {gpu.label} NVLink {name}", str(total)) for gpu in gpus for name, total in _link_totals(gpu)),
    )
    trouble = [
        *_missing_links(gpus),
        *(said for gpu in gpus for link in gpu.links for said in _moved_link_counters(gpu, link)),
    ]
    return judged(
        trouble,
        "`nvidia-smi nvlink --status` and `nvidia-smi nvlink -e` a minute apart; look for Xid 74 or 144 to 150 in the "
        "kernel log. The operator inspects cable, baseplate and both ends",
        f"{sum(_active_links(gpu) for gpu in gpus)} links active, no error counter moved in {NVML_INTERVAL_S:g} s",
        *details,
    )


def _active_links(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.links)


def _missing_links(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Boards differ in how many links are wired, so a GPU is compared with the others of its model."""
    alike: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        alike[gpu.name].append(gpu)
    for group in alike.values():
        most = max(_active_links(gpu) for gpu in group)
        for gpu in group:
            if _active_links(gpu) < most:
                yield f"{gpu.label} has {_active_links(gpu)} active links, others of its model {most}"


def _moved_link_counters(gpu: Gpu, link: NvLink) -> Iterator[str]:
    for name, before, after in _link_counters(link.before, link.after):
        limit = CRC_PER_SECOND * NVML_INTERVAL_S if name == "CRC" else EVENTS_AT_LEAST
        if after - before >= limit:
            yield f"{gpu.label} link {link.number}: {after - before} {name} errors in {NVML_INTERVAL_S:g} s"


def _link_counters(before: LinkErrors, after: LinkErrors) -> Iterator[tuple[str, int, int]]:
    pairs = (
        ("replay", before.replay, after.replay),
        ("recovery", before.recovery, after.recovery),
        ("CRC", before.crc, after.crc),
    )
    for name, one, two in pairs:
        if one is not None and two is not None:
            yield name, one, two


def _link_totals(gpu: Gpu) -> Iterator[tuple[str, int]]:
    totals: dict[str, int] = defaultdict(int)
    for link in gpu.links:
        for name, _, after in _link_counters(link.before, link.after):
            totals[name] += after
    yield from totals.items()


GPU_NVLINK = check("gpu-nvlink", look_at_gpus(_judge_gpu_nvlink))


_AER_FILES = {"fatal": "aer_dev_fatal", "non-fatal": "aer_dev_nonfatal"}
_PCIE_FIX = (
    "`lspci -vvv -s ADDRESS` shows the link and its errors; the operator checks seating, riser and cable. A GPU that falls "
    "off the bus often says this first"
)


def _look_at_pcie_errors(system: System) -> CheckResult:
    """PCIe errors: the kernel's messages of the last day, and the counters of GPUs and network adapters, read twice.

    Corrected errors only cost time and happen on healthy machines, so they are reported but not judged; uncorrected ones lose
    data or the device. Counters: the kernel's aer_dev_fatal and aer_dev_nonfatal.
    """
    counters = _read_aer_counters(system)
    events = recent_events(system, {KernelKind.AER})
    if isinstance(events, Unanswered) and not counters:
        return skipped(f"{events.why}, and the kernel keeps no error counters of a GPU or adapter", events.fix)
    if not events and not counters and lacks_gpu(system):
        return skipped("no GPU is on the PCI bus, and no adapter's errors are counted")
    words = () if isinstance(events, Unanswered) else events
    details = tuple((f"count {label} {name}", str(counter.after)) for (label, name), counter in counters.items())
    moved = [
        f"{label}: {counter.added} {name} errors in {INTERVAL_S:g} s"
        for (label, name), counter in counters.items()
        if counter.added
    ]
    lost = [event for event in words if _is_uncorrected(event)]
    unread = f"; {events.why}" if isinstance(events, Unanswered) else ""
    corrected = f"; {len(words)} messages of corrected ones" if words else ""
    trouble = [*moved, *([told(lost)] if lost else [])]
    return judged(trouble, _PCIE_FIX, f"no uncorrected PCIe error{corrected}{unread}", *details)


def _is_uncorrected(event: KernelEvent) -> bool:
    """`AER: Uncorrected (Fatal) error`, `severity=Uncorrected`, and `AER: device recovery failed` after one."""
    return "Uncorrect" in event.text or "recovery failed" in event.text


def _read_aer_counters(system: System) -> Mapping[tuple[str, str], Counter]:
    """By device and severity."""
    devices = find_devices(system)
    before = dict(_aer_totals(system, devices))
    if not before:
        return {}
    system.pause(INTERVAL_S)
    after = dict(_aer_totals(system, devices))
    return {key: Counter(before[key], after[key]) for key in before if key in after}


def _aer_totals(system: System, devices: tuple[PciDevice, ...]) -> Iterator[tuple[tuple[str, str], int]]:
    """The last line of the file is its sum: `TOTAL_ERR_FATAL 0`."""
    for device in devices:
        for name, file in _AER_FILES.items():
            last = (system.read(f"{device.folder}/{file}") or "").strip().rpartition("\n")[2].split()
            if len(last) == 2 and last[0].startswith("TOTAL_ERR") and last[1].isdecimal():
                yield (device.label, name), int(last[1])


PCIE_ERRORS = check("pcie-errors", _look_at_pcie_errors)


_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s")
_WIDTH = re.compile(r"(\d+)")
_NO_WIDTH = (0, 63, 255)
"""What virtual machines show instead of a width."""


def _look_at_pcie_link(system: System) -> CheckResult:
    """Do GPUs and network adapters run at the width and speed that they and their slot can do?

    The maximum is what both ends support: the device and the port above it. An idle GPU lowers its link speed to save power,
    as NVML documents, so a GPU's speed counts only while NVML reports that it works. Width is never lowered to save power.
    """
    devices = find_devices(system)
    if not devices:
        return skipped("no GPU and no network adapter is on the PCI bus")
    shown = [device for device in devices if _widths(system, device)]
    if not shown:
        return skipped("the PCI bus of this machine shows no link widths: it belongs to a virtual machine")
    working = _working_gpus(system)
    trouble = [said for device in shown for said in _slow_pcie_links(system, device, working)]
    details = (("PCIe links", "; ".join(_describe_link(system, device) for device in shown)),)
    return judged(
        trouble,
        "`lspci -vvv -s ADDRESS | grep -E 'LnkCap|LnkSta'`; the operator reseats the card or looks at riser and slot",
        f"{len(shown)} links are as wide and fast as both ends support",
        *details,
    )


def _slow_pcie_links(system: System, device: PciDevice, working: frozenset[str]) -> Iterator[str]:
    widths = _widths(system, device)
    if widths and widths[0] < widths[1]:
        yield f"{device.label} runs x{widths[0]:g} of x{widths[1]:g}"
    speeds = _now_and_most(system, device, "speed", _SPEED)
    if speeds and speeds[0] < speeds[1] and (not device.is_gpu or device.address in working):
        yield f"{device.label} runs {speeds[0]:g} of {speeds[1]:g} GT/s"


def _widths(system: System, device: PciDevice) -> tuple[float, float] | None:
    widths = _now_and_most(system, device, "width", _WIDTH)
    return None if widths is None or set(widths) & set(_NO_WIDTH) else widths


def _now_and_most(system: System, device: PciDevice, what: str, form: re.Pattern[str]) -> tuple[float, float] | None:
    """Now, and the maximum that the device and the port above it support."""
    now = form.search(system.read(f"{device.folder}/current_link_{what}") or "")
    own = form.search(system.read(f"{device.folder}/max_link_{what}") or "")
    # The entry is a link into the bus tree, so `..` is the port above the device.
    above = form.search(system.read(f"{device.folder}/../max_link_{what}") or "")
    if now is None or own is None:
        return None
    return float(now[1]), min(float(own[1]), float(above[1]) if above else float(own[1]))


def _describe_link(system: System, device: PciDevice) -> str:
    widths = _widths(system, device)
    return f"{'GPU' if device.is_gpu else 'adapter'} {device.model} x{widths[0] if widths else 0:g}"


def _working_gpus(system: System) -> frozenset[str]:
    """Addresses of GPUs that are not idle."""
    nvml = system.nvml()
    gpus = nvml.readable if isinstance(nvml, Nvml) else ()
    return frozenset(gpu.bus_id for gpu in gpus if gpu.bus_id and gpu.reasons is not None and not gpu.idle)


PCIE_LINK = check("pcie-link", _look_at_pcie_link)
