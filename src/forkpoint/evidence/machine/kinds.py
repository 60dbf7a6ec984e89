"""Words for what machines say. Stages that judge need these alone, and not the tables by which such files are read."""

from enum import StrEnum

RAS = "ras"
"""The kind of a remark that NCCL's RAS network made."""
APART = 180
"""Seconds without an event of the kernel after which another incident begins: NVIDIA's own rule."""


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
