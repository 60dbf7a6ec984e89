"""What a kernel said, as a value."""

from dataclasses import dataclass
from enum import StrEnum

LOST_GPU = 79
"""The Xid that a lost GPU has. Some drivers print only the sentence."""


class KernelKind(StrEnum):
    XID = "xid"
    GPU_LOST = "gpu-lost"
    """The driver's sentence that a GPU fell off the bus, printed without a number."""
    SXID = "sxid"
    AER = "aer"
    """PCIe errors."""
    MLX5 = "mlx5"
    """A network adapter: port, cable, power, firmware."""
    NVLINK = "nvlink"
    """NVLink errors that have no Xid of their own."""
    OOM_KILL = "oom-kill"
    HUNG_TASK = "hung-task"
    SOFT_LOCKUP = "soft-lockup"
    MACHINE_CHECK = "machine-check"
    SEGFAULT = "segfault"
    NFS = "nfs"
    PEERMEM = "peermem"
    """GPUDirect's memory registration. Mostly the noise of a process that ends."""


@dataclass(frozen=True, slots=True)
class KernelEvent:
    kind: KernelKind
    host: str | None
    """As the line says; dmesg itself does not."""
    when: str | None
    """To the second, as printed: a date, or the seconds since boot. Times of two hosts do not compare."""
    bus_id: str | None
    """`0000:3b:00.0`. Of a PCIe error the device that erred, where the line tells it from the one that reports."""
    xid: int | None
    sxid: int | None
    pid: int | None
    process: str | None
    device: str | None
    """What else names it: MIG instance, NVSwitch, network port, reporting PCIe port, file server, library, or the cgroup
    of a process that was killed for its memory."""
    text: str
    """The message without time and host."""
    file: str
    line: int
    previous_xid: int | None = None
    """What the driver itself names as this one's trigger."""

    @property
    def explained_by(self) -> int | None:
        """The Xid that explains it."""
        return LOST_GPU if self.kind is KernelKind.GPU_LOST else self.xid
