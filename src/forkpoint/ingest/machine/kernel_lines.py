"""How each kind of kernel message is written. A literal first; the expression only where the literal stands."""

import re
from dataclasses import dataclass

from forkpoint.ingest.machine.bus import BUS
from forkpoint.ingest.machine.kernel_event import KernelKind


@dataclass(frozen=True, slots=True)
class Form:
    """One way a message is written. The groups of the expression are fields of `KernelEvent`."""

    kind: KernelKind
    mark: str
    """A literal that every such line contains."""
    regex: re.Pattern[str]
    """Matched at the beginning of the message. A number counts only where what follows shows that it was not cut."""


def _form(kind: KernelKind, mark: str, regex: str) -> Form:
    return Form(kind, mark, re.compile(regex))


_PID = r"(?P<pid>\d{1,9})"
_TASK = r"(?P<process>[^\n]{1,64}?)"
_ADAPTER = rf"(?:mlx5_core (?P<bus_id>{BUS})(?: (?P<device>[\w.-]{{1,32}}+))?: |(?=mlx5_))"
_NVIDIA = r"(?=NVRM: |nvidia-nv)[^\n]{0,200}?"
_TROUBLE = r"(?i:error|fail|fatal|degraded|timeout|timed out|link down)"

FORMS = (
    _form(
        KernelKind.XID,
        "NVRM:",
        rf"NVRM: {{1,4}}Xid {{1,4}}\((?:PCI:)?(?P<bus_id>{BUS})(?P<device>(?: {{1,2}}GPU-C?I:\d{{1,3}}){{0,2}})\): {{1,4}}"
        r"(?P<xid>\d{1,3})(?=[,\s])"
        r"(?:,? {1,4}pid='?(?:(?P<pid>\d{1,9})|<[a-z]{1,20}>)'?(?=[,\s]))?"
        r"(?:,? {1,4}name=(?P<process>[^,\n]{1,64})(?=[,\n]))?"
        r"(?:[^\n]{0,400}? caused by previous Xid (?P<previous_xid>\d{1,3})(?=[\s.,]))?",
    ),
    _form(KernelKind.GPU_LOST, "NVRM:", rf"NVRM: GPU (?P<bus_id>{BUS}): GPU has fallen off the bus"),
    _form(
        KernelKind.GPU_LOST,
        "NVRM:",
        rf"NVRM: (?!Xid)(?:The NVIDIA GPU (?P<bus_id>{BUS}))?[^\n]{{0,160}}?fallen off the bus",
    ),
    _form(
        KernelKind.SXID,
        "SXid (",
        rf"nvidia-(?P<device>nvswitch\d{{1,3}}): SXid \(PCI:(?P<bus_id>{BUS})\): (?P<sxid>\d{{1,6}})(?=[,\s])",
    ),
    _form(
        KernelKind.SXID,
        "detected NVSwitch ",
        r"detected NVSwitch (?:non-)?fatal error (?P<sxid>\d{1,6}) on fid \d{1,6} on NVSwitch pci bus id "
        rf"(?P<bus_id>{BUS})(?=\s)",
    ),
    _form(
        KernelKind.AER,
        "AER: ",
        rf"(?P<device>[\w.-]{{1,40}}+ {BUS}): AER: [^\n:]{{0,80}}?received(?: from|:) (?P<bus_id>{BUS})(?=\s)",
    ),
    _form(
        KernelKind.AER,
        "AER: ",
        rf"(?P<device>[\w.-]{{1,40}}+) (?P<bus_id>{BUS}): AER: [^\n]{{0,120}}?(?:[Ee]rror|recover)[^\n]{{0,400}}\n",
    ),
    _form(
        KernelKind.AER,
        "PCIe Bus Error: ",
        rf"(?P<device>[\w.-]{{1,40}}+) (?P<bus_id>{BUS}): (?:AER: )?PCIe Bus Error: severity=",
    ),
    _form(
        KernelKind.MLX5,
        "mlx5_",
        rf"{_ADAPTER}[^\n]{{0,160}}?(?:\bLink (?:DOWN|INIT|ACTIVE|ARMED|down|up)\b|insufficient power|Cable unplugged"
        r"|Port module event\[error\]|[Hh]igh [Tt]emperature|health compromised|Fatal error|fatal_err"
        r"|\b(?!ACCESS_REG)[A-Z][A-Z0-9_]{1,40}\(0x[0-9a-f]{1,8}\) (?:timeout|(?:op_mod\(0x[0-9a-f]{1,8}\) |uid\(\d{1,9}\) ){0,2}failed))",
    ),
    _form(KernelKind.NVLINK, "NVRM:", rf"{_NVIDIA}(?i:nvlink)[^\n]{{0,200}}?{_TROUBLE}"),
    _form(KernelKind.NVLINK, "nvidia-nvlink", rf"{_NVIDIA}(?i:nvlink)[^\n]{{0,200}}?{_TROUBLE}"),
    _form(
        KernelKind.OOM_KILL,
        "oom-kill:constraint=",
        r"oom-kill:constraint=\w{1,40}+,[^\n]{0,3000}?task_memcg=(?P<device>[^,\n]{1,300}),"
        rf"task=(?P<process>[^,\n]{{1,64}}),pid={_PID}(?=[,\s])",
    ),
    _form(
        KernelKind.OOM_KILL,
        "ut of memory",
        r"(?:Memory cgroup o|O)ut of memory(?: \([^)\n]{1,60}\))?: Kill(?:ed)? process "
        rf"{_PID},? {{1,2}}\((?P<process>[^)\n]{{1,64}})\)",
    ),
    _form(
        KernelKind.HUNG_TASK,
        " blocked for more than ",
        rf"INFO: task {_TASK}:{_PID} blocked for more than \d{{1,6}} seconds",
    ),
    _form(
        KernelKind.SOFT_LOCKUP,
        "soft lockup - CPU#",
        r"(?:NMI )?(?:watchdog: )?(?:BUG: )?soft lockup - CPU#\d{1,5} stuck for \d{1,6}s!"
        r"(?: \[(?P<process>[^\]\n]{1,64}):(?P<pid>\d{1,9})\])?",
    ),
    _form(
        KernelKind.SEGFAULT,
        "segfault at ",
        r"(?P<process>[^\[\n]{1,64})\[(?P<pid>\d{1,9})\]: segfault at [0-9a-f]{1,16} ip "
        r"(?:[^\n]{0,120}? in (?P<device>[^\[\s]{1,120})\[)?",
    ),
    _form(
        KernelKind.SEGFAULT,
        "traps: ",
        r"traps: (?P<process>[^\[\n]{1,64})\[(?P<pid>\d{1,9})\] (?:general protection|trap |invalid opcode)"
        r"(?:[^\n]{0,120}? in (?P<device>[^\[\s]{1,120})\[)?",
    ),
    _form(
        KernelKind.MACHINE_CHECK,
        "[Hardware Error]: ",
        r"(?:mce: \[Hardware Error\]: (?:Machine check events logged|CPU \d{1,5}: Machine Check)"
        r"|\{\d{1,9}\}\[Hardware Error\]: event severity: )",
    ),
    _form(
        KernelKind.MACHINE_CHECK,
        "Memory failure: ",
        rf"Memory failure: 0x[0-9a-f]{{1,16}}: [Kk]illing {_TASK}:{_PID} due to hardware memory corruption",
    ),
    _form(KernelKind.MACHINE_CHECK, "EDAC ", r"EDAC (?P<device>MC\d{1,3}): \d{1,9} [CU]E "),
    _form(KernelKind.NFS, "nfs: server ", r"nfs: server (?P<device>[^\s]{1,253}) (?:not responding|OK\b)"),
    _form(KernelKind.PEERMEM, "nvidia-peermem ", r"nvidia-peermem [\w:]{1,80}+ ERROR "),
)
