"""Log events: one value per line or block of lines that matters for an incident; and how a log ends."""

from enum import StrEnum

from msgspec import Struct

from forkpoint.model.op import Stack

_AGENT = "/torch/distributed/elastic/agent/"


class LogKind(StrEnum):
    """What a line says. What it means for the incident is judged later: most errors are printed by victims."""

    WATCHDOG_TIMEOUT = "watchdog-timeout"
    GROUP_STATUS = "group-status"
    """How far this rank got in a group: last enqueued, started, completed."""
    ASYNC_ERROR = "async-error"
    WATCHDOG_DIED = "watchdog-died"
    """The watchdog ended with an exception; mostly repeats an earlier line."""
    WATCHDOG_STUCK = "watchdog-stuck"
    """The heartbeat monitor says that the watchdog itself makes no progress."""
    TEARDOWN = "teardown"
    """The process is torn down after an error that an earlier line reports: nothing new."""
    REMOTE_ERROR = "remote-error"
    DESYNC = "desync"
    DUMP_SIGNAL = "dump-signal"
    """Dumps were requested, and by whom."""
    DUMPED = "dumped"
    """The rank wrote a dump: it was alive when dumps were requested."""
    DUMP_FAILED = "dump-failed"
    RECORDER_OFF = "recorder-off"
    COLLECTIVE_STACK = "collective-stack"
    """The call site of the collective that did not finish."""
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
    """A peer did not take part in time: gloo's equivalent of a watchdog timeout."""
    NETWORK = "network"
    """A connection broke or was refused, mostly because the peer is gone."""
    SIZES_DIFFER = "sizes-differ"
    """Two ranks passed different sizes to one operation."""
    CALLS_DIFFER = "calls-differ"
    """Ranks compared their calls before making them (TORCH_DISTRIBUTED_DEBUG=DETAIL), and they differ."""
    MODELS_DIFFER = "models-differ"
    """DDP compared the ranks' models when it was constructed, and they differ."""
    BARRIER_MISSED = "barrier-missed"
    """Ranks that did not reach a monitored barrier in time, as rank 0 lists them."""
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
    """An error passed up through NCCL's call chain; also printed when NCCL then recovered."""
    NCCL_INIT = "nccl-init"
    NCCL_SETUP = "nccl-setup"
    NCCL_CALL = "nccl-call"
    RAS = "ras"
    SETTINGS = "settings"
    LEAVING = "leaving"
    """It began to destroy its process groups."""
    LEFT = "left"
    """It destroyed its process group in order: the program ended."""
    FINISHED = "finished"
    """The launcher saw the job end with exit code 0."""
    COMMAND_FAILED = "command-failed"
    """`forkpoint run` saw its command end with another exit code."""
    STALLED = "stalled"
    """An observer of the live job saw no progress for longer than its limit."""
    GPU_FAULT = "gpu-fault"
    HOST_STALL = "host-stall"
    HARDWARE_HINT = "hardware-hint"
    STACK = "stack"
    """Where a thread was."""
    STOOD_STILL = "stood-still"
    """`forkpoint watch` saw that no rank issued or finished a call for a while."""
    NOTICE = "notice"
    """The program says that it skipped something: a batch, a step, the rest of an epoch."""
    DEBUGGER = "debugger"
    """A debugger prompt: the process is stopped until somebody types a command."""
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
"""Kinds that can flood a log: fewer events of each are kept."""


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
"""Kinds that report a failure. Those of an orderly exit do not, and dumps can be requested at any time."""


class Speaker(Struct, frozen=True):
    """Who printed a line, according to its prefixes. `[Rank 3]` inside a message does not count."""

    rank: int | None = None
    """Global."""
    local_rank: int | None = None
    host: str | None = None
    """Host, pod, container or address."""
    task: int | None = None
    """The number that a launcher (srun, mpirun) put in front. Only the whole log shows whether it is the rank."""
    pid: int | None = None

    @property
    def without_rank(self) -> "Speaker":
        return self if self.rank is None else Speaker(None, self.local_rank, self.host, self.task, self.pid)


class Group(Struct, frozen=True):
    """A process group as a line names it; older releases print less."""

    name: str | None
    """Equal on all its ranks: the GUID, or in older releases a number."""
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
    """None: not printed, or start events are off."""


class LogEvent(Struct, frozen=True):
    """One line (or block) of a log that matters for the incident."""

    kind: LogKind
    file: str
    line: int
    rank: int | None
    """The rank it is about: mostly the one that printed it."""
    text: str
    """As printed, without prefixes and control characters, shortened."""
    seq: int | None = None
    """Sequence number of the op it names."""
    stack: Stack = ()
    """Innermost frame first."""
    pattern: str = ""
    speaker: Speaker = Speaker()
    time: str | None = None
    """As printed, to the second. The fraction is dropped: torch's C++ logger takes it from another clock."""
    group: Group | None = None
    work: Work | None = None
    counters: Counters | None = None
    exception: str | None = None
    """The exception's class, if a traceback ended with one."""
    details: tuple[tuple[str, str], ...] = ()
    repeated: int = 1
    """How often it was printed, if a launcher collapsed repeats: whose the other lines were is not known."""

    @property
    def is_of_agent(self) -> bool:
        """Torchrun's agent raised it, not a rank: what it counts are nodes."""
        return any(_AGENT in frame.filename for frame in self.stack)

    @property
    def is_failure(self) -> bool:
        """A kind that reports a failure, or any traceback except that of a launcher that was told to stop."""
        return self.kind in FAILURES or (self.exception is not None and self.kind is not LogKind.AGENT_STOP)

    def detail(self, name: str) -> str | None:
        return next((value for key, value in self.details if key == name), None)


class Ending(Struct, frozen=True):
    """How a log ends."""

    lines: tuple[str, ...] = ()
    done: int | None = None
    """The line near the end that says that the program is done."""
    done_by: frozenset[int] = frozenset()
    """Ranks that printed such a line with their number: several ranks may share one log."""


NO_ENDING = Ending()


class PrintedLine(Struct, frozen=True):
    """A line that the program itself printed, kept so that ranks can be compared."""

    line: int
    rank: int | None
    """Who printed it, by its prefix; None: the log's owner, if it has one."""
    text: str
    time: str | None = None
    """As the line or a prefix of the log's collector has it."""
