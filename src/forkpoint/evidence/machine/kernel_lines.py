"""Lines of kernel messages: the prefixes with time and host, the patterns of each kind of message, and the event type."""

import re

from msgspec import Struct

from forkpoint.evidence.machine.kinds import KernelKind
from forkpoint.evidence.machine.places import BUS
from forkpoint.evidence.text import ISO_TIME, SYSLOG_TIME

# ---------------------------------------------------------------------------------------------------------------------
# A kernel message as a value.

LOST_GPU = 79
"""The Xid of a lost GPU. Some drivers print only the sentence, without the number."""


class KernelEvent(Struct, frozen=True):
    kind: KernelKind
    host: str | None
    """From the line's prefix; dmesg itself does not print it."""
    when: str | None
    """As printed, to the second: a date, or seconds since boot. Times of two hosts cannot be compared."""
    bus_id: str | None
    """`0000:3b:00.0`. For a PCIe error, the faulty device, if the line distinguishes it from the reporting one."""
    xid: int | None
    sxid: int | None
    pid: int | None
    process: str | None
    device: str | None
    """What else it names: MIG instance, NVSwitch, network port, reporting PCIe port, file server, library, or the cgroup of
    a process that was killed for memory."""
    text: str
    """The message without time and host."""
    file: str
    line: int
    previous_xid: int | None = None
    """The Xid that the driver itself names as the trigger of this one."""

    @property
    def explained_by(self) -> int | None:
        """The Xid that explains it."""
        return LOST_GPU if self.kind is KernelKind.GPU_LOST else self.xid


# ---------------------------------------------------------------------------------------------------------------------
# The header of a kernel message: time, host and priority, as dmesg, journalctl, syslog and pdsh print them.
#
#     [12345.678901] NVRM: ...                                  dmesg
#     [Sun Feb 23 16:24:18 2025] NVRM: ...                      dmesg -T
#     Feb 23 16:24:18 node-7 kernel: NVRM: ...                  journalctl -k, kern.log
#     2025-02-23T16:24:18+00:00 node-7 kernel: [12345.6] ...    newer syslog

_HOST = r"[A-Za-z0-9][\w.-]{0,252}+"

_ACROSS_HOSTS = re.compile(rf"(?P<host>{_HOST}): (?=\[[ \d+]{{0,9}}\.?\d|\[[A-Z][a-z]{{2}} |{SYSLOG_TIME} |{ISO_TIME})")
"""pdsh and similar tools put the host before everything else."""
_LAYERS = tuple(
    re.compile(layer)
    for layer in (
        r"\[ {0,9}(?P<when>\d{1,9})\.\d{6}\]",
        r"\[ {0,9}\+\d{1,9}\.\d{1,9}\]",
        r"\[(?P<when>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]",
        r"\[(?P<when>[A-Z][a-z]{2}[ \d]\d \d\d:\d\d)\]",
        rf"(?P<when>{ISO_TIME})(?:[.,]\d{{1,9}})?(?P<zone>Z|[+-]\d\d:?\d\d)?(?= )",
        rf"(?P<when>{SYSLOG_TIME})(?:\.\d{{1,9}})?(?= )",
        rf"[A-Z][a-z]{{2}} (?P<when>{ISO_TIME})(?:\.\d{{1,9}})? [A-Z]{{2,5}}(?= )",
        r"(?P<when>\d{9,11})\.\d{3,9}(?= )",
        # Lines of other programs have the program's name instead of `kernel`.
        rf"(?P<host>{_HOST}) kernel:(?= )",
        r"kernel:(?= )",
        r"kern {0,3}:\w{1,6} {0,4}:(?= )",
        r"<\d{1,3}>",
        r"\d{1,3},\d{1,12},(?P<micro>\d{1,16}),[^;\s]{1,40};",
        r"\[ {0,9}[TC]\d{1,9}\]",
        # Fabric Manager's own log
        r"\[(?P<when>[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d)\] \[\w{1,10}\] \[tid \d{1,9}\]",
    )
)
_LAYERS_AT_MOST = 8
_ANOTHERS = re.compile(rf"{_HOST} [\w./@-]{{1,80}}+(?:\[\d{{1,9}}\])?:(?= )")


class KernelHeader(Struct, frozen=True):
    host: str | None
    when: str | None
    message: str
    layers: int
    """How many prefixes there were."""
    by_kernel: bool
    """It has a prefix that only the kernel's lines have."""
    by_another: bool
    """A journal line from another program."""


def read_header(line: str) -> KernelHeader:
    host = when = None
    layers, by_kernel = 0, False
    rest = line.lstrip()
    across = _ACROSS_HOSTS.match(rest)
    if across:
        host, rest = across["host"], rest[across.end() :].lstrip()
    while layers < _LAYERS_AT_MOST:
        found = next((match for layer in _LAYERS if (match := layer.match(rest))), None)
        if found is None:
            break
        layers += 1
        named = found.groupdict()
        host = host or named.get("host")
        when = when or _dated(named) or _seconds(named.get("micro"))
        by_kernel = by_kernel or "kern" in found[0] or rest.startswith(("<", "[ ")) or _is_uptime(found[0])
        rest = rest[found.end() :].lstrip()
    return KernelHeader(host, when, rest, layers, by_kernel, bool(when and not by_kernel and _ANOTHERS.match(rest)))


def _dated(named: dict[str, str]) -> str | None:
    """The time without its fraction, with its offset from UTC, if there is one."""
    return f"{named['when']}{named.get('zone') or ''}" if named.get("when") else None


def _seconds(micro: str | None) -> str | None:
    return str(int(micro) // 1_000_000) if micro else None


def _is_uptime(prefix: str) -> bool:
    """`[12345.678901]`: microseconds since boot."""
    whole, point, fraction = prefix.strip("[]").partition(".")
    return bool(point) and whole.isdigit() and len(fraction) == 6


# ---------------------------------------------------------------------------------------------------------------------
# The form of each kind of kernel message. The regular expression is tried only on lines that contain the literal.


class Form(Struct, frozen=True):
    """One form of a message. The groups of the expression are fields of `KernelEvent`."""

    kind: KernelKind
    mark: str
    """A literal that every such line contains."""
    regex: re.Pattern[str]
    """Matched at the beginning of the message. A number must be followed by something, else it may have been cut off."""


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
