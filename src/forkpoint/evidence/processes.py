"""Processes of a job: which rank each one is, and with which exit code it ended."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from forkpoint.model.log import LogEvent, LogKind

# ---------------------------------------------------------------------------------------------------------------------
# Which rank a process is. Files of stacks are often named by process (`py-spy-11333.txt`), so their number is not a rank; a
# log may say which rank that process is.

_HEAD = 1 << 18
"""Characters at the beginning of a log: processes print who they are there."""
_HEADER = re.compile(r"^Process (\d{1,9}): ", re.MULTILINE)
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

_SPAWNED = re.compile(
    r"^Process (?P<pid>\d{1,9}): .*\bspawn_main\(tracker_fd=(?P<tracker>\d{1,4}), pipe_handle=(?P<pipe>\d{1,4})\)",
    re.MULTILINE,
)
"""Python's multiprocessing says in the command line of each process by which pipe it was started."""

OfProcess = tuple[int, int]
"""(process id, rank)."""


def find_process(stacks: str) -> int | None:
    """The process id in the first line that py-spy prints."""
    found = _HEADER.search(stacks)
    return int(found[1]) if found else None


def read_processes(log: str) -> Iterator[OfProcess]:
    """`process_index=3 pid=11333`, `rank 3 (pid 11333)`, `pid: 11333, rank: 3`."""
    head = log[:_HEAD].lower()
    if "pid" in head or "process id" in head:  # few logs contain it, and the patterns are slow
        yield from ((int(m["pid"]), int(m["rank"])) for says in _SAYS for m in says.finditer(head))


def read_listed_processes(text: str) -> Iterator[OfProcess]:
    """From `ps` output with a single torchrun of a single-node job: torchrun starts its workers in the order of their ranks."""
    head = text[:_HEAD]
    launchers = [m for m in _LISTED.finditer(head) if _LAUNCHER.search(m[0])] if "PPID" in head else []
    if len(launchers) != 1 or _MORE_NODES.search(launchers[0][0]):
        return
    count = _LAUNCHER.search(launchers[0][0])
    workers = sorted(int(m["pid"]) for m in _LISTED.finditer(head) if m["parent"] == launchers[0]["pid"])
    if count is not None and len(workers) == int(count["count"]):
        yield from zip(workers, range(len(workers)), strict=True)


def read_spawned(stacks: str) -> tuple[int, int, int] | None:
    """(pipe, the resource tracker's pipe, process id) of a process that `mp.spawn` started."""
    found = _SPAWNED.search(stacks)
    return (int(found["pipe"]), int(found["tracker"]), int(found["pid"])) if found else None


_PIPE = 2
"""File descriptors of a pipe."""


def order_spawned(spawned: Iterable[tuple[int, int, int]]) -> Iterator[OfProcess]:
    """`mp.spawn` opens a pipe for each rank in turn, right after its tracker's: by their numbers it is seen if one is missing."""
    started = sorted(spawned)
    pipes = [pipe - tracker for pipe, tracker, _ in started]
    pids = [pid for *_, pid in started]
    if len(pids) > 1 and pipes == [_PIPE * (at + 1) for at in range(len(pipes))] and pids == sorted(pids):
        yield from zip(pids, range(len(pids)), strict=True)


def order_ended(events: Iterable[LogEvent], world: int) -> Iterator[OfProcess]:
    """Torchrun ends its workers in the order of their ranks. If it ended as many as the job has, and started no others, each is
    known.
    """
    ended = [e for e in events if e.pattern == _ENDED_BY_AGENT and e.speaker.pid is not None]
    pids = list(dict.fromkeys(e.speaker.pid for e in ended if e.speaker.pid is not None))
    if len({e.file for e in ended}) == 1 and len(pids) == world > 1 and pids == sorted(pids):
        yield from zip(pids, range(world), strict=True)


_ENDED_BY_AGENT = "agent-ends-worker"


def processes_of_events(events: Iterable[LogEvent]) -> Iterator[OfProcess]:
    """From lines with a process id in their prefix, and from a launcher's table of failed workers."""
    for event in events:
        pid = event.detail("pid") or event.speaker.pid
        if event.rank is not None and pid:
            yield int(pid), event.rank


def agree_on_processes(said: Iterable[OfProcess]) -> dict[int, int]:
    """Process id -> rank, without processes that claim two ranks, and without ranks with two processes (a restart)."""
    ranks: dict[int, set[int]] = defaultdict(set)
    pids: dict[int, set[int]] = defaultdict(set)
    for pid, rank in said:
        ranks[pid].add(rank)
        pids[rank].add(pid)
    sure = ((pid, next(iter(own))) for pid, own in ranks.items() if len(own) == 1)
    return {pid: rank for pid, rank in sure if len(pids[rank]) == 1}


# ---------------------------------------------------------------------------------------------------------------------
# How processes ended, from a table.

_COLUMNS = re.compile(r"\t+| {2,}")
_RANK_COLUMN = re.compile(r"(?:global[ _])?rank", re.IGNORECASE)
_CODE_COLUMN = re.compile(r"exit(?:[ _-]?code|[ _-]?status)?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,7}")
_HEADER_AT_MOST = 2000
_SIGNALLED = 128
"""Shells and containers report a signal as this plus its number."""


class _Columns(Struct, frozen=True):
    rank: int
    code: int
    count: int


def _columns(header: str) -> _Columns | None:
    cells = _COLUMNS.split(header.strip())
    ranks = [at for at, cell in enumerate(cells) if _RANK_COLUMN.fullmatch(cell)]
    codes = [at for at, cell in enumerate(cells) if _CODE_COLUMN.fullmatch(cell)]
    return _Columns(ranks[0], codes[0], len(cells)) if len(ranks) == len(codes) == 1 else None


def read_exit_table(text: str, name: str) -> Iterator[LogEvent]:
    """Exit codes from a table with a column for the rank and one for the exit code, as `kubectl get pods -o
    custom-columns=...`, a scheduler or a person writes it. Rows that do not fit are skipped. Signals become negative codes,
    as in Python: -9.
    """
    columns = _columns(text[:_HEADER_AT_MOST].partition("\n")[0])
    if columns is None:
        return
    for number, row in enumerate(text.splitlines()[1:], 2):
        cells = _COLUMNS.split(row.strip())
        if len(cells) != columns.count or not all(_NUMBER.fullmatch(cells[at]) for at in (columns.rank, columns.code)):
            continue
        code = int(cells[columns.code])
        signed = _SIGNALLED - code if code > _SIGNALLED else code
        yield LogEvent(
            LogKind.EXITED, name, number, int(cells[columns.rank]), " ".join(cells), details=(("code", str(signed)),)
        )
