"""What a log says: one value per line or block that bears on an incident, and the whole of one log."""

from enum import StrEnum

from msgspec import Struct

from forkpoint.model.op import Stack


class LogKind(StrEnum):
    """What a line says. What it means for the incident is for others to judge: most errors are printed by victims."""

    WATCHDOG_TIMEOUT = "watchdog-timeout"
    GROUP_STATUS = "group-status"
    """How far a group came on this rank: last enqueued, started, completed."""
    ASYNC_ERROR = "async-error"
    WATCHDOG_DIED = "watchdog-died"
    """The watchdog ended with an exception, mostly the echo of a line before it."""
    WATCHDOG_STUCK = "watchdog-stuck"
    """The heartbeat monitor says that the watchdog itself makes no progress."""
    TEARDOWN = "teardown"
    """The process is taken down after an error told before: no news."""
    REMOTE_ERROR = "remote-error"
    DESYNC = "desync"
    DUMP_SIGNAL = "dump-signal"
    """Dumps were asked for, and by whom."""
    DUMPED = "dumped"
    """The rank was alive when dumps were asked for."""
    DUMP_FAILED = "dump-failed"
    RECORDER_OFF = "recorder-off"
    COLLECTIVE_STACK = "collective-stack"
    """Where the collective that did not end was called."""
    GIL_HELD = "gil-held"
    EXCEPTION = "exception"
    CUDA_ERROR = "cuda-error"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    """Ended by a signal from outside."""
    CRASHED = "crashed"
    """Ended by itself, in native code."""
    EXITED = "exited"
    """A launcher saw a process end."""
    LOADER_DIED = "loader-died"
    PEER_TIMEOUT = "peer-timeout"
    """A peer took no part in time (gloo): what a watchdog timeout is on GPUs."""
    NETWORK = "network"
    """A connection broke or was refused, mostly because the peer is gone."""
    SIZES_DIFFER = "sizes-differ"
    """Two ranks brought different sizes to one operation."""
    CALLS_DIFFER = "calls-differ"
    """Ranks compared their calls before they made them (DETAIL), and they differ."""
    MODELS_DIFFER = "models-differ"
    """DDP compared the ranks' models when it was made, and they differ."""
    BARRIER_MISSED = "barrier-missed"
    """Ranks that did not come to a monitored barrier in time, as rank 0 names them."""
    STORE = "store"
    RENDEZVOUS = "rendezvous"
    MISCONFIGURED = "misconfigured"
    AGENT_FAILURE = "agent-failure"
    """The first failures that one node's agent saw: usually victims."""
    AGENT_STOP = "agent-stop"
    """An agent ends workers because another failed, or because it was told to stop."""
    CANCELLED = "cancelled"
    NODE_FAILED = "node-failed"
    NCCL_WARN = "nccl-warn"
    NCCL_TRAIL = "nccl-trail"
    """An error on its way up through NCCL; also printed where NCCL then found another way."""
    NCCL_INIT = "nccl-init"
    NCCL_SETUP = "nccl-setup"
    NCCL_CALL = "nccl-call"
    RAS = "ras"
    SETTINGS = "settings"
    LEAVING = "leaving"
    """Taking down its process groups began."""
    LEFT = "left"
    """Its process group was taken down in order: the program ended."""
    FINISHED = "finished"
    """Whoever started the job saw it end with exit code 0."""
    STALLED = "stalled"
    """An observer of the live job saw nothing move for longer than it was told to wait."""
    GPU_FAULT = "gpu-fault"
    HOST_STALL = "host-stall"
    HARDWARE_HINT = "hardware-hint"
    STACK = "stack"
    """Where a thread was."""
    STOOD_STILL = "stood-still"
    """A watch saw that no rank issued or finished a call for a while."""
    NOTICE = "notice"
    """The program says that it left something out: a batch, a step, the rest of an epoch."""
    DEBUGGER = "debugger"
    """A debugger asks for a command: the process stands until somebody types one."""
    REPEATED = "repeated"
    """Ray left out lines like this one."""


QUIET = frozenset({
    LogKind.TEARDOWN,
    LogKind.NCCL_TRAIL,
    LogKind.NCCL_SETUP,
    LogKind.NCCL_INIT,
    LogKind.NCCL_CALL,
    LogKind.SETTINGS,
    LogKind.STACK,
    LogKind.NOTICE,
    LogKind.DEBUGGER,
    LogKind.REPEATED,
})  # fmt: skip
"""Kinds that can fill a log: fewer of each are kept."""


FAILURES = frozenset({
    LogKind.WATCHDOG_TIMEOUT,
    LogKind.WATCHDOG_STUCK,
    LogKind.PEER_TIMEOUT,
    LogKind.ASYNC_ERROR,
    LogKind.REMOTE_ERROR,
    LogKind.DESYNC,
    LogKind.GIL_HELD,
    LogKind.EXCEPTION,
    LogKind.CUDA_ERROR,
    LogKind.OUT_OF_MEMORY,
    LogKind.KILLED,
    LogKind.CRASHED,
    LogKind.LOADER_DIED,
    LogKind.NETWORK,
    LogKind.SIZES_DIFFER,
    LogKind.CALLS_DIFFER,
    LogKind.MODELS_DIFFER,
    LogKind.BARRIER_MISSED,
    LogKind.RENDEZVOUS,
    LogKind.NODE_FAILED,
    LogKind.GPU_FAULT,
})  # fmt: skip
"""Kinds that tell of a failure. A program that ends in order does not, and dumps can be asked for at any time."""


class Speaker(Struct, frozen=True):
    """Whose line it is, as far as its prefixes tell. `[Rank 3]` inside a message is none of these."""

    rank: int | None = None
    """Global."""
    local_rank: int | None = None
    host: str | None = None
    """Host, pod, container or address."""
    task: int | None = None
    """The number a launcher (srun, mpirun) put in front. Whether it is the rank shows only over the whole log."""
    pid: int | None = None


class Group(Struct, frozen=True):
    """A process group as a line names it; older releases name less."""

    name: str | None
    """What is equal on all its ranks: GUID, or the number that came before it."""
    desc: str | None
    group_rank: int
    """Within the group. Never a global rank."""


class Work(Struct, frozen=True):
    """The operation a line names."""

    op: str
    seq: int | None
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int
    """The effective timeout of its group."""
    ran_ms: int | None = None


class Counters(Struct, frozen=True):
    """Last sequence numbers of a group on one rank; -1 = none yet."""

    enqueued: int
    completed: int
    started: int | None = None
    """None: not told, or start events are off."""


class LogEvent(Struct, frozen=True):
    """One line (or block) of a log that bears on the incident."""

    kind: LogKind
    file: str
    line: int
    rank: int | None
    """The rank it speaks of: mostly the one that printed it."""
    text: str
    """As printed, without prefixes and control characters, shortened."""
    seq: int | None = None
    """Sequence number of the op it names."""
    stack: Stack = ()
    """Innermost frame first."""
    pattern: str = ""
    speaker: Speaker = Speaker()
    time: str | None = None
    """As printed, to the second. Its fraction is not kept: it comes from another clock and orders nothing."""
    group: Group | None = None
    work: Work | None = None
    counters: Counters | None = None
    exception: str | None = None
    """The class, where a traceback ended in one."""
    details: tuple[tuple[str, str], ...] = ()
    repeated: int = 1
    """How often it was said, where a launcher folded lines: the others' ranks are not known."""

    @property
    def is_failure(self) -> bool:
        """Of a kind that tells of one, or a traceback, whatever it ended in: but for that of a launcher that was told to stop."""
        return self.kind in FAILURES or (self.exception is not None and self.kind is not LogKind.AGENT_STOP)

    def detail(self, name: str) -> str | None:
        return next((value for key, value in self.details if key == name), None)


class Ending(Struct, frozen=True):
    """How a log ends."""

    lines: tuple[str, ...] = ()
    own_time: str | None = None
    """The last time that the program itself printed."""
    done: int | None = None
    """The line that says that the program is done, near the end."""
    done_by: frozenset[int] = frozenset()
    """Ranks that give their number where they say so: one log may be that of many."""


NO_ENDING = Ending()
