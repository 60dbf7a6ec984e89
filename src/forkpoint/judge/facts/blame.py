"""What logs and launchers say about failures and exits, and which lines are mere consequences of a peer's failure:
those accuse nobody.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from forkpoint.judge.facts.cite import events_of
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind

# ---------------------------------------------------------------------------------------------------------------------
# What logs say about failures, and which lines are mere consequences of a peer's failure: those accuse nobody.

# Exceptions raised because a peer went away, did not come, or made a different call: this rank is a victim, or one of
# many.
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
"""Also printed when a retry then succeeds. They count only if an exception shows that no retry did."""


def asked_for_id(event: LogEvent) -> bool:
    """In a group's first call the rank asked the group's first rank for the communicator's id, and did not get it."""
    return _ASKS_FOR_ID in event.text


def uses_gloo(incident: Incident) -> bool:
    """The dumps say so, or lines about failed calls do, and nothing mentions NCCL."""
    libs = {trace.comm_lib for trace in incident.timeline.traces.values()}
    told = {e.kind for e in incident.capture.events}
    said = any("gloo" in e.text for e in incident.capture.events if e.kind in (LogKind.PEER_TIMEOUT, LogKind.NETWORK))
    by_nccl = told & {LogKind.WATCHDOG_TIMEOUT, LogKind.NCCL_INIT} or any(lib.startswith("nccl") for lib in libs)
    return not by_nccl and (said or "gloo" in libs)


def cut_off(incident: Incident) -> set[int]:
    """Ranks whose own log says that a peer closed its connection."""
    return {e.rank for e in find_closings(incident) if e.rank is not None}


@fact
def find_closings(incident: Incident) -> tuple[LogEvent, ...]:
    return tuple(e for e in incident.capture.events if e.kind in SAID_OF_PEERS and CLOSED.search(whole_text(e)))


def is_connecting(incident: Incident) -> bool:
    """A rank started to create its communicator and did not finish. (Empty dumps alone may mean that the recorder was
    off.)
    """
    told = [
        e for e in incident.capture.events if e.kind is LogKind.NCCL_INIT and e.file not in incident.capture.cut_logs
    ]
    phases = {(e.rank, e.detail("phase")) for e in told}
    began, ended = ({rank for rank, phase in phases if phase == wanted} for wanted in ("Init START", "Init COMPLETE"))
    return bool(began - ended)


def cuda_errors(rank: int, incident: Incident) -> list[LogEvent]:
    """Failed CUDA calls, except for running out of memory."""
    return [e for e in events_of(rank, incident, LogKind.CUDA_ERROR, LogKind.EXCEPTION) if _OF_CUDA.search(e.text)]


def is_victim_text(text: str) -> bool:
    return bool(_VICTIM.search(text))


def whole_text(event: LogEvent) -> str:
    return " ".join((event.text, event.detail("reason") or "", event.detail("last_error") or ""))


def blames_peers(event: LogEvent) -> bool:
    """The line reports a consequence of a peer's behaviour: it went away, did not come, or sent something else."""
    if event.kind in _BECAUSE_OF_PEERS:
        return not (event.kind is LogKind.ASYNC_ERROR and "ncclUnhandledCudaError" in whole_text(event))
    if event.kind in _IF_RAISED:
        return event.exception is not None
    if event.kind is LogKind.EXCEPTION and event.exception is None:
        return False  # a truncated traceback proves nothing
    return (event.exception is not None or event.kind is LogKind.CRASHED) and is_victim_text(event.text)


# ---------------------------------------------------------------------------------------------------------------------
# Network errors logged before the timeout. After it, connections break because ranks are being shut down.

_AFTER = frozenset({LogKind.WATCHDOG_TIMEOUT, LogKind.DUMPED})


@fact
def network_events(incident: Incident) -> tuple[LogEvent, ...]:
    """Per log, those before its first line about a timeout or a dump. The order of lines within a log is enough; clocks
    are not used.

    Not with gloo: it has no watchdog whose line would separate cause from consequence.
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
# How processes ended, according to whatever started them: torchrun's agents, Slurm.

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
"""Signals that a launcher sends to the siblings of a failed process."""
_FROM_ITSELF = frozenset({"SIGABRT"})
_NOT_KNOWN = "To enable traceback see"
_TASKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


class Exit(Struct, frozen=True):
    """The end of one process, as its launcher saw it."""

    rank: int
    signal: str | None
    """`SIGKILL`; None if the process exited by itself, with a code."""
    is_first: bool
    """The launcher saw this failure first, or was itself told to stop. Each node's agent has its own first failure."""
    said: str
    """The last line of the traceback, if the launcher has it."""
    event: LogEvent

    @property
    def is_stopped(self) -> bool:
        """The launcher stopped it because another process had failed: it did nothing wrong."""
        return not self.is_first and self.signal in _STOPPING

    @property
    def is_from_outside(self) -> bool:
        """Something other than the process and its launcher ended it."""
        return self.is_first and self.signal is not None and self.signal not in _FROM_ITSELF


@fact
def find_exits(incident: Incident) -> dict[int, Exit]:
    """Exits by rank. If a rank has several, the one marked as the first failure."""
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
    """Ranks that exited with code 0: torchrun reports how every other process of the job ended."""
    rows = [e for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE and e.rank is not None]
    if sum(e.pattern == "agent-saw-failure" for e in incident.capture.events) > 1:
        return frozenset()  # they belong to another attempt
    told = {e.rank for e in rows if e.rank is not None}
    first_node = all(e.detail("local_rank") == str(e.rank) for e in rows) and len({e.detail("host") for e in rows}) == 1
    if not first_node:
        return frozenset()
    # A node's workers are numbered without gaps: a number missing below the highest is a worker that did not fail.
    return frozenset(rank for rank in range(max(told, default=0)) if rank not in told)


def _agents_tables(incident: Incident) -> Iterator[Exit]:
    """An agent that restarts its workers logs each attempt's first failure in a line, and the last attempt's failures
    in a table.
    """
    for file in dict.fromkeys(e.file for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE):
        told = [e for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE and e.file == file]
        rows = [e for e in told if e.rank is not None and e.detail("code")]
        lines = [e for e in told if e.pattern == "agent-saw-failure"]
        if lines and incident.capture.attempt < len(lines) - bool(rows):
            yield from _exit_of_line(lines[incident.capture.attempt], rows, incident)
        else:
            yield from (_exit_of_row(e) for e in rows)


def _exit_of_row(event: LogEvent) -> Exit:
    assert event.rank is not None  # checked by the caller
    signal = event.detail("signal") or _SIGNALS.get(event.detail("code") or "")
    said = event.detail("what") or ""
    return Exit(event.rank, signal, event.detail("root") == "yes", "" if _NOT_KNOWN in said else said, event)


def _exit_of_line(event: LogEvent, rows: list[LogEvent], incident: Incident) -> Iterator[Exit]:
    """A line holds only the worker's number on its node. Rows of another attempt, or ranks that wrote to this log
    before, show which rank the node's first worker was. Without a table it is rank 0, if no more ranks wrote to the
    log than there were workers.
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
    """Slurm's tasks are ranks if torchrun is not involved and their number equals the world size."""
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
    """Such a table has no times, and launchers kill processes that still hang after another one failed. So the only
    process killed by a signal was the first to fail only if every other one says that a peer closed its connection.
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
    """Ranks of a node whose agent was told to stop while others were not: a scheduler or a person took the node away."""
    owners: dict[str, set[int]] = {}
    for file, rank in incident.capture.logs:
        owners.setdefault(file, set()).update(() if rank is None else (rank,))
    for event in incident.capture.events:
        number = event.detail("name") or event.detail("signal") if event.pattern == "agent-stopped" else None
        signal = _SIGNALS.get(f"-{number}") if number else None
        ranks = owners.get(event.file, set())
        # If there is only one agent, being told to stop means the end of the job. A node was taken away only if another
        # node's console is there too.
        others = any(len(own) > 1 and own.isdisjoint(ranks) for own in owners.values())
        if signal in (None, "SIGINT") or len(ranks) < 2 or not others:
            continue
        for rank in sorted(ranks):
            yield Exit(rank, signal, is_first=True, said="", event=event)


_PID = re.compile(r"(?<![a-z])pid[ =:]{1,3}(\d{1,9})\b", re.IGNORECASE)
_OF_SHELLS = frozenset({"shell-saw-process-end", "shell-reports-crash"})
_BY_OTHERS = "SIGKILL"


def _children_of_shells(incident: Incident) -> Iterator[Exit]:
    """A script that started the ranks names a process ended by a signal, and a rank printed that pid as its own. It
    failed first if it is the only one and all others lost their connections. A crash is always the program's own
    doing; a kill counts only if the log of every rank is there.
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
    """Finds a rank by a pid that only this rank printed: `rank=2 world=4 pid=8432`."""
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
