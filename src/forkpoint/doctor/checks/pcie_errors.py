"""PCIe errors: the kernel's messages of the last day, and the counters of GPUs and network adapters, read twice.

Corrected errors cost time only and happen on sound machines, so they are told and not judged; uncorrected ones lose data
or the device. Counters: the kernel's aer_dev_fatal and aer_dev_nonfatal.
"""

from collections.abc import Iterator, Mapping

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.counters import INTERVAL_S, Counter
from forkpoint.doctor.kernel_log import recent_events, say, told
from forkpoint.doctor.pci import PciDevice, find_devices, lacks_gpu
from forkpoint.doctor.system import NoAnswer, System
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind

_FILES = {"fatal": "aer_dev_fatal", "non-fatal": "aer_dev_nonfatal"}
_FIX = (
    "`lspci -vvv -s ADDRESS` shows the link and its errors; seating, riser and cable are the operator's. A GPU that falls "
    "off the bus often says this first"
)


def look(system: System) -> CheckResult:
    counters = _read_counters(system)
    events = recent_events(system, {KernelKind.AER})
    if isinstance(events, NoAnswer) and not counters:
        return skipped(f"{events.why}, and the kernel keeps no error counters of a GPU or adapter", events.fix)
    if not events and not counters and lacks_gpu(system):
        return skipped("no GPU is on the PCI bus, and no adapter's errors are counted")
    words = () if isinstance(events, NoAnswer) else events
    details = tuple((f"count {label} {name}", str(counter.after)) for (label, name), counter in counters.items())
    moved = [
        f"{label}: {counter.added} {name} errors in {INTERVAL_S:g} s"
        for (label, name), counter in counters.items()
        if counter.added
    ]
    lost = [event for event in words if _is_uncorrected(event)]
    if moved or lost:
        return bad("; ".join([*moved, *([told(lost)] if lost else [])]), _FIX, *details)
    unread = f"; {events.why}" if isinstance(events, NoAnswer) else ""
    corrected = f"; {len(words)} messages of corrected ones" if words else ""
    return ok(f"no uncorrected PCIe error{corrected}{unread}", *details)


def _is_uncorrected(event: KernelEvent) -> bool:
    """`AER: Uncorrected (Fatal) error`, `severity=Uncorrected`, and `AER: device recovery failed` after one."""
    return "Uncorrect" in event.text or "recovery failed" in event.text


def _read_counters(system: System) -> Mapping[tuple[str, str], Counter]:
    """By device and severity."""
    devices = find_devices(system)
    before = dict(_totals(system, devices))
    if not before:
        return {}
    system.pause(INTERVAL_S)
    after = dict(_totals(system, devices))
    return {key: Counter(before[key], after[key]) for key in before if key in after}


def _totals(system: System, devices: tuple[PciDevice, ...]) -> Iterator[tuple[tuple[str, str], int]]:
    """The last line of the file is its sum: `TOTAL_ERR_FATAL 0`."""
    for device in devices:
        for name, file in _FILES.items():
            last = (system.read(f"{device.folder}/{file}") or "").strip().rpartition("\n")[2].split()
            if len(last) == 2 and last[0].startswith("TOTAL_ERR") and last[1].isdecimal():
                yield (device.label, name), int(last[1])


CHECK = Check(
    name="pcie-errors",
    title="no uncorrected PCIe errors",
    why="A GPU or adapter whose link loses data stalls its rank, or falls off the bus (Xid 79).",
    look=look,
    inject=say("pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"),
)
