"""Kinds of machine messages. A module of its own, so that later stages need not import the readers and their patterns."""

from enum import StrEnum

RAS = "ras"
"""The kind of a remark from NCCL's RAS network."""
APART = 180
"""Seconds without a kernel event after which a new incident begins: NVIDIA's rule."""


class KernelKind(StrEnum):
    XID = "xid"
    GPU_LOST = "gpu-lost"
    """The driver's sentence that a GPU fell off the bus, without an Xid number."""
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
    """GPUDirect's memory registration. Mostly noise from a process that exits."""
