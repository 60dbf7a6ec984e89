"""Asks one live rank for its recorder and its stacks: through torch's debug server, the guard, or torch's pipe.

None of these stops the process. The debug server answers from C++ threads, even while Python is stuck; the guard
answers from a Python thread, so not while another one holds the GIL; the pipe makes NCCL's recorder write its file.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forkpoint.gather.attach.jobs import LiveRank, thread_names
from forkpoint.gather.this_machine import told_prefixes
from forkpoint.live.processes import PROC
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
            return Answer(rank.rank, "debug server", gathered.dumps[0], next(iter(gathered.stacks), None))
        refused += (f"debug server: {note.partition(': ')[2] or note}" for note in gathered.notes)
    told = ask_guard(rank.pid) if rank.pid else NoAnswer("only its debug server is known")
    if isinstance(told, NoAnswer):
        refused += [f"guard: {told.why}"] if _has_guard(rank) else []
        return Answer(rank.rank, refused=tuple(refused))
    return _keep(rank.rank, told, spool, stacks=stacks)


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
    for descriptor in descriptors:
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]


def _listening(process: Path) -> Iterator[tuple[str, int]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (process / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
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
    try:
        lines = (Path(proc) / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return pid
    spaces = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(spaces[-1]) if spaces else pid


def _keep(rank: int, told: GuardAnswer, spool: Spool, *, stacks: bool) -> Answer:
    path = spool.put(f"rank_{rank}.pickle", told.dump)
    dump = Dump(path, time.monotonic(), time.time())
    standing = spool.put(f"rank_{rank}_stacks.txt", told.stacks.encode()) if stacks else None
    return Answer(rank, "guard", dump, standing, told.groups)


# ---------------------------------------------------------------------------------------------------------------------
# torch's pipes: one question for all ranks of this machine that share a stem.


def find_pipes(ranks: Sequence[LiveRank]) -> list[Pipes]:
    prefixes: dict[str, dict[str, None]] = {}
    for rank in ranks:
        if stem := rank.environ.get(_PIPE):
            told = [str(Path(rank.folder, prefix)) for prefix in told_prefixes(rank.environ)] or list(usual_prefixes())
            prefixes.setdefault(str(Path(rank.folder, stem)), {}).update(dict.fromkeys(told))
    return [Pipes(stem, tuple(found), _NEVER_AGAIN_S) for stem, found in prefixes.items()]
