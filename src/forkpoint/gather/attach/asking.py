"""Asks one live rank for its recorder and its stacks: through torch's debug server, the guard, or torch's pipe.

None of these stops the process. The debug server answers from C++ threads, even while Python is stuck; the guard
answers from a Python thread, so not while another one holds the GIL; the pipe makes NCCL's recorder write its file.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forkpoint.gather.attach.jobs import LiveRank, find_live_ranks, thread_names
from forkpoint.live.processes import PROC, read_link, read_text
from forkpoint.live.rank_socket import GuardAnswer, read_answer, socket_name
from forkpoint.live.watch.sources import Dump, Gathered, Spool
from forkpoint.live.watch.sources.ask import NoAnswer, SourceAddress, ask
from forkpoint.live.watch.sources.debug_server import DebugServer, DebugWorker
from forkpoint.live.watch.sources.pipes import Pipes, usual_prefixes
from forkpoint.model.world import ProcessGroup
from forkpoint.traces.dump import MAX_BYTES

AT_ONCE = 8
"""Ranks that are asked at the same time: that many dumps may be in memory."""
_NEVER_AGAIN_S = 1e9
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_WORKER_SOCKET = "TORCH_WORKER_SERVER_SOCKET"
_WORKER_THREAD = "pt_workerserver"


@dataclass(frozen=True, slots=True)
class Answer:
    rank: int
    way: str = ""
    """How its recorder was read; empty if it was not."""
    dump: Dump | None = None
    stacks: str | None = None
    """The file with its stacks."""
    no_stacks: str = ""
    """Why the source that gave the recorder's content gave no stacks."""
    groups: tuple[ProcessGroup, ...] = ()
    refused: tuple[str, ...] = ()
    """Each way that failed, with the reason."""


def ask_rank(rank: LiveRank, spool: Spool, *, stacks: bool) -> Answer:
    """Tries one way after the other until one gives a dump."""
    refused: list[str] = []
    for address in find_workers(rank):
        source = DebugServer([DebugWorker(rank.rank, address)], dated=True)
        gathered = source.gather(spool, stacks=stacks)
        if gathered.dumps:
            stack = next(iter(gathered.stacks), None)
            why = "" if stack or not stacks else "; ".join(f"debug server: {_reason(note)}" for note in gathered.notes)
            return Answer(rank.rank, "debug server", gathered.dumps[0], stack, why)
        refused += (f"debug server: {_reason(note)}" for note in gathered.notes)
    told = ask_guard(rank.pid) if rank.pid else NoAnswer("only its debug server is known")
    if isinstance(told, NoAnswer):
        refused += [f"guard: {told.why}"] if _has_guard(rank) else []
        return Answer(rank.rank, refused=tuple(refused))
    return _keep(rank.rank, told, spool, stacks=stacks)


def _reason(note: str) -> str:
    """Without the rank and the address."""
    return note.partition(": ")[2].removeprefix("no stack: ") or note


class LocalRanks:
    """Ranks of this machine as a source of evidence, for `collect`."""

    name = "ranks"

    def __init__(self, ranks: Sequence[LiveRank]) -> None:
        self._ranks = tuple(ranks)

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(partial(ask_rank, spool=spool, stacks=stacks), self._ranks))
        return Gathered(
            dumps=tuple(a.dump for a in answers if a.dump),
            stacks=tuple(a.stacks for a in answers if a.stacks),
            notes=tuple(f"rank {a.rank}: {why}" for a in answers for why in a.refused),
        )


# ---------------------------------------------------------------------------------------------------------------------
# torch's debug server: every rank has its own port, found only in the list of its sockets.

_LISTENING = "0A"
_ANY_ADDRESS = ("00000000", "0" * 32)


def find_workers(rank: LiveRank, proc: str = PROC) -> list[SourceAddress]:
    """Only sockets that listen on all addresses, in a process that has such a server: gloo and NCCL listen on one address."""
    if rank.worker is not None:
        return [rank.worker]
    if path := rank.environ.get(_WORKER_SOCKET):
        return [SourceAddress(str(Path(rank.folder, path)), 0)]
    if _WORKER_THREAD not in thread_names(rank.pid, proc):
        return []
    process = Path(proc) / str(rank.pid)
    own = set(_socket_inodes(process))
    ports = {port for inode, port in _listening(process) if inode in own}
    return [SourceAddress("localhost", port) for port in sorted(ports - {_store_port(rank)})]


def _store_port(rank: LiveRank) -> int:
    port = rank.environ.get("MASTER_PORT", "")
    return int(port) if port.isascii() and port.isdecimal() else 0


def _socket_inodes(process: Path) -> Iterator[str]:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for target in map(read_link, descriptors):
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _listening(process: Path) -> Iterator[tuple[str, int]]:
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, read_text(process / "net" / table).splitlines()[1:]):
            address, _, port = fields[1].partition(":")
            if fields[3] == _LISTENING and address in _ANY_ADDRESS:
                yield fields[9], int(port, 16)


# ---------------------------------------------------------------------------------------------------------------------
# The guard of the process.


def ask_guard(pid: int) -> GuardAnswer | NoAnswer:
    try:
        name = socket_name(f"{PROC}/{pid}", own_pid(pid))
    except OSError as error:
        return NoAnswer(f"its process cannot be read ({error.strerror})")
    data = ask(SourceAddress(name, 0), b"", MAX_BYTES)
    if isinstance(data, NoAnswer):
        return data
    return read_answer(data) or NoAnswer("its answer is not a guard's: is another version of forkpoint there?")


def _has_guard(rank: LiveRank) -> bool:
    return bool(rank.environ.get("FORKPOINT"))


def own_pid(pid: int, proc: str = PROC) -> int:
    """Its pid in its own pid namespace, which differs in a container."""
    lines = read_text(Path(proc) / str(pid) / "status").splitlines()
    spaces = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(spaces[-1]) if spaces else pid


def _keep(rank: int, told: GuardAnswer, spool: Spool, *, stacks: bool) -> Answer:
    path = spool.put(f"rank_{rank}.pickle", told.dump)
    dump = Dump(path, time.monotonic(), time.time())
    standing = spool.put(f"rank_{rank}_stacks.txt", told.stacks.encode()) if stacks else None
    return Answer(rank, "guard", dump, standing, groups=told.groups)


# ---------------------------------------------------------------------------------------------------------------------
# torch's pipes: one question for all ranks of this machine that share a stem.


@dataclass(frozen=True, slots=True)
class PipedDumps:
    dumps: Mapping[int, Dump]
    why_not: Mapping[int, str]
    """For ranks that have a pipe but gave no dump."""


def ask_pipes(ranks: Sequence[LiveRank], spool: Spool, proc: str = PROC) -> PipedDumps:
    running = find_live_ranks(proc) if any(_pipe_of(rank) for rank in ranks) else []
    why_not = {rank.rank: why for rank in ranks if _pipe_of(rank) and (why := _why_not_its_own(rank, running, proc))}
    answers = [pipes.ask(spool) for pipes in find_pipes([rank for rank in ranks if rank.rank not in why_not])]
    return PipedDumps(
        {rank: dump for one in answers for rank, dump in one.dumps.items()},
        why_not | {rank: why for one in answers for rank, _, why in one.missing},
    )


def find_pipes(ranks: Sequence[LiveRank]) -> list[Pipes]:
    """Only these ranks are asked: a pipe remains after its rank has ended."""
    sharing: dict[str, list[LiveRank]] = {}
    for rank in ranks:
        if rank.environ.get(_PIPE):
            sharing.setdefault(str(Path(rank.folder, rank.environ[_PIPE])), []).append(rank)
    return [
        Pipes(stem, _prefixes(asked), _NEVER_AGAIN_S, frozenset(rank.rank for rank in asked))
        for stem, asked in sharing.items()
    ]


def _pipe_of(rank: LiveRank) -> Path | None:
    stem = rank.environ.get(_PIPE)
    return Path(rank.folder, f"{stem}{rank.rank}.pipe") if stem else None


def _prefixes(ranks: Sequence[LiveRank]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(Path(rank.folder, p)) for rank in ranks for p in usual_prefixes(rank.environ)))


def _why_not_its_own(rank: LiveRank, running: Sequence[LiveRank], proc: str) -> str | None:
    """Pipes and dumps are named by rank only, so two jobs of one user may use the same name for both."""
    pipe = _pipe_of(rank)
    if pipe is not None and _is_of_another(pipe, rank.pid, proc):
        return f"{pipe} is read by another process: a later job made a pipe of that name"
    space, target = _mounts(rank.pid, proc), _prefixes([rank])[:1]
    for other in running:
        same = other.rank == rank.rank and other.pid != rank.pid and _prefixes([other])[:1] == target
        if same and _mounts(other.pid, proc) == space:
            return (
                f"rank {other.rank} of another job (pid {other.pid}) writes its dump to the same file; "
                "set TORCH_FR_DUMP_TEMP_FILE to another one for each job"
            )
    return None


def _is_of_another(pipe: Path, pid: int, proc: str) -> bool:
    """Torch keeps open the pipe that it created."""
    try:
        own = pipe.stat()
        opened = [path.stat() for path in (Path(proc) / str(pid) / "fd").iterdir() if path.exists()]
    except OSError:
        return False
    return all((one.st_dev, one.st_ino) != (own.st_dev, own.st_ino) for one in opened)


def _mounts(pid: int, proc: str) -> str:
    return read_link(Path(proc) / str(pid) / "ns" / "mnt")
