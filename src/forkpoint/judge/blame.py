"""What logs and launchers say of failures and ends, and which lines only follow from a peer's failure: those accuse nobody."""

import re
from collections.abc import Iterator

from msgspec import Struct

from forkpoint.judge.cite import events_of
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind

# ---------------------------------------------------------------------------------------------------------------------
# What logs say of failures, and which lines only follow from a peer's failure: those accuse nobody.

# Exceptions that a rank gets because a peer went away, did not come or differs: it is a victim, or one of many.
_VICTIM = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|nccl(?!UnhandledCuda)\w*Error|NCCL error|communicator was aborted"
    r"|Connection (?:closed|reset|refused)"
    r"|across all ranks|between collectives|inconsistent"
    r"|[Tt]imed out|[Tt]imeout|Broken pipe|gloo|Watchdog|[Ss]ocket|KeyboardInterrupt|SystemExit|SignalException"
)
CLOSED = re.compile(r"Connection (?:closed|reset)|remote process exited|ncclRemoteError|[Pp]eer.{0,80} closed")
SAID_OF_PEERS = (LogKind.EXCEPTION, LogKind.NETWORK, LogKind.PEER_TIMEOUT, LogKind.ASYNC_ERROR, LogKind.REMOTE_ERROR)
TIMEOUTS = (LogKind.PEER_TIMEOUT, LogKind.WATCHDOG_TIMEOUT)
_ASKS_FOR_ID = "retrieving ncclUniqueId from [0]"
_OF_CUDA = re.compile(r"CUDA(?: driver)? error: (?!out of memory)|Cuda failure (?!2 )")
_BECAUSE_OF_PEERS = frozenset({
    *(LogKind.WATCHDOG_TIMEOUT, LogKind.WATCHDOG_DIED, LogKind.ASYNC_ERROR, LogKind.REMOTE_ERROR, LogKind.PEER_TIMEOUT),
    *(LogKind.DESYNC, LogKind.TEARDOWN, LogKind.DUMPED, LogKind.DUMP_SIGNAL, LogKind.CALLS_DIFFER),
    *(LogKind.BARRIER_MISSED, LogKind.MODELS_DIFFER),
})  # fmt: skip
_IF_RAISED = frozenset({LogKind.NETWORK, LogKind.STORE, LogKind.RENDEZVOUS})
"""Also printed where a second try then succeeds: they count where an exception says that none did."""


def asked_for_id(event: LogEvent) -> bool:
    """It asked the first rank of a group, in the group's first call, for the id of their communicator, and that did not come."""
    return _ASKS_FOR_ID in event.text


def uses_gloo(incident: Incident) -> bool:
    """The dumps say so, or the words of calls that failed; and nothing speaks of NCCL."""
    libs = {trace.comm_lib for trace in incident.timeline.traces.values()}
    told = {e.kind for e in incident.capture.events}
    said = any("gloo" in e.text for e in incident.capture.events if e.kind in (LogKind.PEER_TIMEOUT, LogKind.NETWORK))
    by_nccl = told & {LogKind.WATCHDOG_TIMEOUT, LogKind.NCCL_INIT} or any(lib.startswith("nccl") for lib in libs)
    return not by_nccl and (said or "gloo" in libs)


def cut_off(incident: Incident) -> set[int]:
    """Ranks whose own words say that a peer closed its connection."""
    return {e.rank for e in find_closings(incident) if e.rank is not None}


@fact
def find_closings(incident: Incident) -> tuple[LogEvent, ...]:
    return tuple(e for e in incident.capture.events if e.kind in SAID_OF_PEERS and CLOSED.search(whole_text(e)))


def is_connecting(incident: Incident) -> bool:
    """A rank began to make its communicator and did not finish. (Empty dumps alone may mean that the recorder was off.)"""
    told = [
        e for e in incident.capture.events if e.kind is LogKind.NCCL_INIT and e.file not in incident.capture.cut_logs
    ]
    phases = {(e.rank, e.detail("phase")) for e in told}
    began, ended = ({rank for rank, phase in phases if phase == wanted} for wanted in ("Init START", "Init COMPLETE"))
    return bool(began - ended)


def cuda_errors(rank: int, incident: Incident) -> list[LogEvent]:
    """Calls to its GPU that failed, memory that was merely used up aside."""
    return [e for e in events_of(rank, incident, LogKind.CUDA_ERROR, LogKind.EXCEPTION) if _OF_CUDA.search(e.text)]


def is_victim_text(text: str) -> bool:
    return bool(_VICTIM.search(text))


def whole_text(event: LogEvent) -> str:
    return " ".join((event.text, event.detail("reason") or "", event.detail("last_error") or ""))


def blames_peers(event: LogEvent) -> bool:
    """What the line tells follows from a peer: it went away, did not come, or brought something else."""
    if event.kind in _BECAUSE_OF_PEERS:
        return not (event.kind is LogKind.ASYNC_ERROR and "ncclUnhandledCudaError" in whole_text(event))
    if event.kind in _IF_RAISED:
        return event.exception is not None
    if event.kind is LogKind.EXCEPTION and event.exception is None:
        return False  # a traceback that is cut tells nothing
    return (event.exception is not None or event.kind is LogKind.CRASHED) and is_victim_text(event.text)


# ---------------------------------------------------------------------------------------------------------------------
# Network errors in logs that came before the timeout: afterwards connections break because ranks are taken down.

_AFTER = frozenset({LogKind.WATCHDOG_TIMEOUT, LogKind.DUMPED})


@fact
def network_events(incident: Incident) -> tuple[LogEvent, ...]:
    """Per log, those above its first word of a timeout or dump. Lines of one log are in order; clocks are not used.

    Not with gloo: it has no watchdog whose word would part cause and consequence.
    """
    if any(t.comm_lib == "gloo" for t in incident.timeline.traces.values()):
        return ()
    found: list[LogEvent] = []
    ended: set[str] = set()
    for event in incident.capture.events:
        if event.kind in _AFTER:
            ended.add(event.file)
        elif event.kind is LogKind.NETWORK and event.file not in ended:
            found.append(event)
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------------------
# How processes ended, by the word of who started them: torchrun's agents, Slurm.

_SIGNALS = {"-9": "SIGKILL", "-15": "SIGTERM", "-6": "SIGABRT", "-11": "SIGSEGV", "-7": "SIGBUS", "-2": "SIGINT"}
_SLURM = {
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Out Of Memory": "SIGKILL",
}
_STOPPING = frozenset({"SIGTERM", "SIGINT", "SIGKILL"})
"""What a launcher sends to the siblings of a process that failed."""
_FROM_ITSELF = frozenset({"SIGABRT"})
_NOT_KNOWN = "To enable traceback see"
_TASKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


class Exit(Struct, frozen=True):
    """One process's end, as its launcher saw it."""

    rank: int
    signal: str | None
    """`SIGKILL`; None where it ended by itself, with a code."""
    is_first: bool
    """The first failure that this launcher saw, or it was told to stop itself. Each node's agent has one of its own."""
    said: str
    """The last line of its traceback, where the launcher was given it."""
    event: LogEvent

    @property
    def is_stopped(self) -> bool:
        """The launcher ended it because another process had failed: it did nothing."""
        return not self.is_first and self.signal in _STOPPING

    @property
    def is_from_outside(self) -> bool:
        """Something else than the launcher, and than the process itself, ended it."""
        return self.is_first and self.signal is not None and self.signal not in _FROM_ITSELF


@fact
def find_exits(incident: Incident) -> dict[int, Exit]:
    """By rank. Of several words on one rank that which calls it the first failure."""
    found: dict[int, Exit] = {}
    for end in (
        *_agents_tables(incident),
        *_slurm_tasks(incident),
        *_tables_of_exits(incident),
        *_stopped_nodes(incident),
        *_children_of_shells(incident),
    ):
        if end.rank not in found or end.is_first:
            found[end.rank] = end
    return found


@fact
def find_finished(incident: Incident) -> frozenset[int]:
    """Ranks that ended with code 0: torchrun tells the end of every other process of the job, one way or another."""
    rows = [e for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE and e.rank is not None]
    if sum(e.pattern == "agent-saw-failure" for e in incident.capture.events) > 1:
        return frozenset()  # they are of another attempt
    told = {e.rank for e in rows if e.rank is not None}
    first_node = all(e.detail("local_rank") == str(e.rank) for e in rows) and len({e.detail("host") for e in rows}) == 1
    if not first_node:
        return frozenset()
    # Workers of a node are numbered without holes: who is missing below the highest was there, and did not fail.
    return frozenset(rank for rank in range(max(told, default=0)) if rank not in told)


def _agents_tables(incident: Incident) -> Iterator[Exit]:
    """An agent that restarts its workers tells of each attempt's first failure in a line, and of the last attempt in a table."""
    for file in dict.fromkeys(e.file for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE):
        told = [e for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE and e.file == file]
        rows = [e for e in told if e.rank is not None and e.detail("code")]
        lines = [e for e in told if e.pattern == "agent-saw-failure"]
        if lines and incident.capture.attempt < len(lines) - bool(rows):
            yield from _exit_of_line(lines[incident.capture.attempt], rows, incident)
        else:
            yield from (_exit_of_row(e) for e in rows)


def _exit_of_row(event: LogEvent) -> Exit:
    assert event.rank is not None  # the caller has looked
    signal = event.detail("signal") or _SIGNALS.get(event.detail("code") or "")
    said = event.detail("what") or ""
    return Exit(event.rank, signal, event.detail("root") == "yes", "" if _NOT_KNOWN in said else said, event)


def _exit_of_line(event: LogEvent, rows: list[LogEvent], incident: Incident) -> Iterator[Exit]:
    """A line has the worker's number on its node alone. Rows of another attempt, or ranks that spoke in this log before, show which rank
    the node's first worker was; without a table that is rank 0 where no more ranks speak than there were workers.
    """
    local, signal = event.speaker.local_rank, _SIGNALS.get(event.detail("code") or "")
    firsts = {row.rank - int(row.detail("local_rank") or 0) for row in rows if row.rank is not None}
    if local is None or len(firsts) > 1:
        return
    first = firsts.pop() if firsts else 0
    ended = [e for e in incident.capture.events if e.file == event.file and e.pattern == "agent-ends-worker"]
    workers = range(first, first + 1 + sum(e.line < event.line for e in ended))
    heard = {e.rank for e in incident.capture.events if e.file == event.file and e.line < event.line} - {None}
    heard |= {line.rank for line in incident.capture.printed.get(event.file, ()) if line.line < event.line} - {None}
    if (heard and heard <= set(workers)) or (rows and first == 0):
        yield Exit(first + local, signal, is_first=True, said="", event=event)


def _slurm_tasks(incident: Incident) -> Iterator[Exit]:
    """Tasks are ranks where no torchrun stands between them and Slurm, and there are as many."""
    if any(e.kind in (LogKind.AGENT_FAILURE, LogKind.AGENT_STOP) for e in incident.capture.events):
        return
    told = [e for e in incident.capture.events if e.kind is LogKind.EXITED and e.detail("tasks")]
    world = incident.timeline.world
    first = True
    for event in told:
        tasks = list(_numbers(event.detail("tasks") or ""))
        if not tasks or max(tasks) >= len(world):
            continue
        signal = _SLURM.get(event.detail("how") or "")
        for task in tasks:
            yield Exit(task, signal, first and len(tasks) == 1, "", event)
        first = False


def _tables_of_exits(incident: Incident) -> Iterator[Exit]:
    """Such a table has no times, and launchers kill processes that still hang after another one has failed. So the only process
    that a signal ended was the first only if every other one says that a peer closed its connection.
    """
    told = [e for e in incident.capture.events if e.kind is LogKind.EXITED and e.rank is not None and e.detail("code")]
    for file in dict.fromkeys(e.file for e in told):
        ends = {
            e.rank: (_SIGNALS.get(e.detail("code") or ""), e) for e in told if e.file == file and e.rank is not None
        }
        left = [rank for rank, (signal, _) in ends.items() if signal]
        alone = len(left) == 1 and bool(others := ends.keys() - left) and others <= cut_off(incident)
        for rank, (signal, event) in ends.items():
            yield Exit(rank, signal, is_first=alone and rank in left, said="", event=event)


def _stopped_nodes(incident: Incident) -> Iterator[Exit]:
    """Ranks of a node whose agent was told to stop, where others were not: a scheduler or a person took the node away."""
    owners: dict[str, set[int]] = {}
    for file, rank in incident.capture.logs:
        owners.setdefault(file, set()).update(() if rank is None else (rank,))
    for event in incident.capture.events:
        number = event.detail("name") or event.detail("signal") if event.pattern == "agent-stopped" else None
        signal = _SIGNALS.get(f"-{number}") if number else None
        ranks = owners.get(event.file, set())
        # The only agent being told to stop is the job's end: a node was taken away where another node's console is there too.
        others = any(len(own) > 1 and own.isdisjoint(ranks) for own in owners.values())
        if signal in (None, "SIGINT") or len(ranks) < 2 or not others:
            continue
        for rank in sorted(ranks):
            yield Exit(rank, signal, is_first=True, said="", event=event)


_PID = re.compile(r"(?<![a-z])pid[ =:]{1,3}(\d{1,9})\b", re.IGNORECASE)
_OF_SHELLS = frozenset({"shell-saw-process-end", "shell-reports-crash"})
_BY_OTHERS = "SIGKILL"


def _children_of_shells(incident: Incident) -> Iterator[Exit]:
    """A script that started the ranks names a process that a signal ended, and a rank printed that number as its own. It was the first
    if it is alone, and all others lost their connections. What a program itself brings about, a crash, no launcher does to
    it; a kill counts only where every rank is heard.
    """
    told = [e for e in incident.capture.events if e.pattern in _OF_SHELLS and e.speaker.pid is not None]
    ranks, heard = find_ranks_by_pid(incident), incident.heard | {e.rank for e in find_closings(incident)}
    for event in told:
        rank, signal = ranks.get(event.speaker.pid or 0), _SLURM.get(event.detail("how") or event.detail("what") or "")
        if rank is None or signal is None:
            continue
        others = heard - {rank}
        known = signal != _BY_OTHERS or heard >= set(incident.timeline.world)
        alone = len(told) == 1 and bool(others) and others <= cut_off(incident) and known
        yield Exit(rank, signal, is_first=alone, said="", event=event)


@fact
def find_ranks_by_pid(incident: Incident) -> dict[int, int]:
    """By the number of its process, which this rank alone printed: `rank=2 world=4 pid=8432`."""
    owners: dict[str, set[int | None]] = {}
    for file, rank in incident.capture.logs:
        owners.setdefault(file, set()).add(rank)
    found: dict[int, set[int]] = {}
    for file, lines in incident.capture.printed.items():
        alone = next(iter(owners[file])) if len(owners.get(file, ())) == 1 else None
        for line in lines:
            rank = alone if line.rank is None else line.rank
            for pid in _PID.findall(line.text):
                found.setdefault(int(pid), set()).update(() if rank is None else (rank,))
    return {pid: next(iter(ranks)) for pid, ranks in found.items() if len(ranks) == 1}


def _numbers(tasks: str) -> Iterator[int]:
    for found in _TASKS.finditer(tasks):
        first = int(found[1])
        yield from range(first, min(int(found[2] or first), first + 100_000) + 1)
