"""The header of a kernel message: time, host, priority, in the forms of dmesg, journalctl, syslog and pdsh.

[12345.678901] NVRM: ...                                dmesg
[Sun Feb 23 16:24:18 2025] NVRM: ...                    dmesg -T
Feb 23 16:24:18 node-7 kernel: NVRM: ...                journalctl -k, kern.log
2025-02-23T16:24:18+00:00 node-7 kernel: [12345.6] ...  newer syslog
"""

import re
from dataclasses import dataclass

from forkpoint.ingest.stamps import ISO_TIME, SYSLOG_TIME

_HOST = r"[A-Za-z0-9][\w.-]{0,252}+"

_ACROSS_HOSTS = re.compile(rf"(?P<host>{_HOST}): (?=\[[ \d+]{{0,9}}\.?\d|\[[A-Z][a-z]{{2}} |{SYSLOG_TIME} |{ISO_TIME})")
"""pdsh and its like put the host before everything else."""
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
        # A line that does not come from the kernel says whose it is instead.
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


@dataclass(frozen=True, slots=True)
class KernelHeader:
    host: str | None
    when: str | None
    message: str
    layers: int
    """How many prefixes there were."""
    by_kernel: bool
    """A prefix that other programs do not write."""
    by_another: bool
    """A journal's line of some other program."""


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
    """The fraction is left out; the offset from UTC, where there is one, is not."""
    return f"{named['when']}{named.get('zone') or ''}" if named.get("when") else None


def _seconds(micro: str | None) -> str | None:
    return str(int(micro) // 1_000_000) if micro else None


def _is_uptime(prefix: str) -> bool:
    """`[12345.678901]`: microseconds since boot."""
    whole, point, fraction = prefix.strip("[]").partition(".")
    return bool(point) and whole.isdigit() and len(fraction) == 6
