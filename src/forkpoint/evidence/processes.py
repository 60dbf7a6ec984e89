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
_RANK = r"(?<!local )(?<!node )\b(?:global[ _]?rank|rank|process[ _]index)\b[\]\"')]{0,2}[ =:]{1,3}(?P<rank>\d{1,6})\b"
_PID = r"\b(?:pid|process id)\b[\"']?[ =:(]{1,3}(?P<pid>\d{1,9})\b"
_SAYS = (
    re.compile(rf"{_RANK}[^\n]{{0,80}}?{_PID}"),
    re.compile(rf"{_PID}[^\n]{{0,80}}?{_RANK}"),
)

OfProcess = tuple[int, int]
"""A process and its rank."""


def find_process(stacks: str) -> int | None:
    """The process that py-spy looked at, by the first line that it prints."""
    found = _HEADER.search(stacks)
    return int(found[1]) if found else None


def read_processes(log: str) -> Iterator[OfProcess]:
    """`process_index=3 pid=11333`, `rank 3 (pid 11333)`, `pid: 11333, rank: 3`."""
    head = log[:_HEAD].lower()
    if "pid" in head or "process id" in head:  # few logs say it, and the patterns are slow
        yield from ((int(m["pid"]), int(m["rank"])) for says in _SAYS for m in says.finditer(head))


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
