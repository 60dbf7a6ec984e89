"""What machines say beside the training log: the kernel, NCCL's RAS network, and NCCL's lines about who runs where."""

from forkpoint.ingest.machine.bursts import Burst, group_bursts
from forkpoint.ingest.machine.bus import normal_bus
from forkpoint.ingest.machine.kernel import looks_like_kernel_log, read_kernel_log
from forkpoint.ingest.machine.kernel_event import KernelEvent, KernelKind
from forkpoint.ingest.machine.places import Place, agree, is_same_host, locate, place_of_bus, read_places
from forkpoint.ingest.machine.ras import looks_like_ras, read_ras
from forkpoint.ingest.machine.ras_report import Behind, RasCommunicator, RasProcess, RasReport, find_behind

__all__ = [
    "Behind",
    "Burst",
    "KernelEvent",
    "KernelKind",
    "Place",
    "RasCommunicator",
    "RasProcess",
    "RasReport",
    "agree",
    "find_behind",
    "group_bursts",
    "is_same_host",
    "locate",
    "looks_like_kernel_log",
    "looks_like_ras",
    "normal_bus",
    "place_of_bus",
    "read_kernel_log",
    "read_places",
    "read_ras",
]
