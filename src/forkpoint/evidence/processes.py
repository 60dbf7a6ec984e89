"""Which rank a process is. Files of stacks are often named by process (`py-spy-11333.txt`): the number is no rank then, and a
log may say which rank that process is.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from forkpoint.model.log import LogEvent

_HEAD = 1 << 18
"""Characters at the beginning of a log: processes introduce themselves there."""
_HEADER = re.compile(r"^Process (\d{1,9}): ", re.MULTILINE)
_NO_CHILD = re.compile(r"^Process (\d{1,9}): [^\n]*+\n(?:Python v[^\n]*+\n)?+(?!Parent Process )", re.MULTILINE)
_RANK = r"(?<!local )(?<!node )\b(?:global[ _]?rank|rank|process[ _]index)\b[\]\"')]{0,2}[ =:]{1,3}(?P<rank>\d{1,6})\b"
_PID = r"\b(?:pid|process id)\b[\"']?[ =:(]{1,3}(?P<pid>\d{1,9})\b"
_SAYS = (
    re.compile(rf"{_RANK}[^\n]{{0,80}}?{_PID}"),
    re.compile(rf"{_PID}[^\n]{{0,80}}?{_RANK}"),
)
_LISTED = re.compile(r"^ {0,9}(?:[^\d\s]\S{0,31} {1,9})?(?P<pid>\d{1,9}) {1,9}(?P<parent>\d{1,9}) .*$", re.MULTILINE)
"""A row of `ps -ef`, or of `ps -o pid,ppid,...`."""
_LAUNCHER = re.compile(r"(?:torchrun|torch\.distributed\.run)\b[^\n]*?--nproc[-_]per[-_]node[ =](?P<count>\d{1,3})\b")
_MORE_NODES = re.compile(r"--nnodes[ =](?!1\b)|--node[-_]rank[ =](?!0\b)")

OfProcess = tuple[int, int]
"""A process and its rank."""


def find_process(stacks: str) -> int | None:
    """The process that py-spy looked at, by the first line that it prints."""
    found = _HEADER.search(stacks)
    return int(found[1]) if found else None


def has_other_processes(stacks: str) -> bool:
    """More than one process and its children: whose the last stack is, the first line does not tell."""
    return len({found[1] for found in _NO_CHILD.finditer(stacks)}) > 1


def read_processes(log: str) -> Iterator[OfProcess]:
    """`process_index=3 pid=11333`, `rank 3 (pid 11333)`, `pid: 11333, rank: 3`."""
    head = log[:_HEAD].lower()
    if "pid" in head or "process id" in head:  # few logs say it, and the patterns are slow
        yield from ((int(m["pid"]), int(m["rank"])) for says in _SAYS for m in says.finditer(head))


def read_listed_processes(text: str) -> Iterator[OfProcess]:
    """From a list of processes (`ps`) with the only torchrun of a job of one node: it starts its workers one after the other, in
    the order of their ranks.
    """
    head = text[:_HEAD]
    launchers = [m for m in _LISTED.finditer(head) if _LAUNCHER.search(m[0])] if "PPID" in head else []
    if len(launchers) != 1 or _MORE_NODES.search(launchers[0][0]):
        return
    count = _LAUNCHER.search(launchers[0][0])
    workers = sorted(int(m["pid"]) for m in _LISTED.finditer(head) if m["parent"] == launchers[0]["pid"])
    if count is not None and len(workers) == int(count["count"]):
        yield from zip(workers, range(len(workers)), strict=True)


def processes_of_events(events: Iterable[LogEvent]) -> Iterator[OfProcess]:
    """From lines that begin with their process, and from a launcher's table of workers that failed."""
    for event in events:
        pid = event.detail("pid") or event.speaker.pid
        if event.rank is not None and pid:
            yield int(pid), event.rank


def agree_on_processes(said: Iterable[OfProcess]) -> dict[int, int]:
    """Without a process that is said to be two ranks, and without a rank that is said to be two processes (a restart)."""
    ranks: dict[int, set[int]] = defaultdict(set)
    pids: dict[int, set[int]] = defaultdict(set)
    for pid, rank in said:
        ranks[pid].add(rank)
        pids[rank].add(pid)
    sure = ((pid, next(iter(own))) for pid, own in ranks.items() if len(own) == 1)
    return {pid: rank for pid, rank in sure if len(pids[rank]) == 1}
