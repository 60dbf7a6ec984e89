"""The ranks of `forkpoint lab collectives`. Also a plain script under any launcher that sets RANK and WORLD_SIZE:

    torchrun --nproc-per-node 8 -m forkpoint.lab.jobs.collectives

Rank 0 prints the result. Every wait has a limit: a rank that makes no progress is reported by the others.
"""

import os
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from forkpoint.lab.collectives.plan import add_plan_arguments, count_gpus, read_plan
from forkpoint.lab.collectives.render import export_result, result_json, result_text
from forkpoint.lab.collectives.report import CollectivesResult, Links, RanksHeard, assemble, read_report
from forkpoint.lab.jobs.collectives.worker import Board, Worker, time_pairs
from forkpoint.lab.ranks import SHARED_GPU
from forkpoint.live.processes import free_port

_GRACE_S = 5
"""How much longer than a collective's own timeout a rank waits before it reports that it hangs."""
_POLL_S = 0.25


def main() -> int:
    args = _arguments().parse_args()
    if args.ranks:
        return fork_ranks(args.ranks, args.backend, lambda: _run_rank(args))
    return _run_rank(args)


def _arguments() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m forkpoint.lab.jobs.collectives")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default=None)
    parser.add_argument("--ranks", type=int, help="start this many ranks here, instead of being started by a launcher")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--perfetto", type=Path, metavar="FILE")
    add_plan_arguments(parser)
    return parser


def _run_rank(args: Namespace) -> int:
    # torch 2.13 has new names for two collectives, which users still call by the old ones.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    if args.backend == "gloo" or (args.backend is None and not torch.cuda.is_available()):
        return _run(args, "gloo", None)
    with tempfile.TemporaryDirectory(prefix="forkpoint-") as folder:
        return _run(args, "nccl", _log_choices(Path(folder)))


def _run(args: Namespace, backend: str, log: Path | None) -> int:
    plan = read_plan(args)
    store, rank, world = next(rendezvous("env://", timeout=timedelta(seconds=plan.timeout)))
    device = _device(backend)
    board = Board(PrefixStore("told", store), rank, world)
    worker = Worker(plan, board, device, log)
    board.post("host", worker.report.host)
    finish = _Finish(args, worker, board, backend)
    threading.Thread(target=_watch, args=(worker, finish), daemon=True).start()
    links = Links()
    try:
        _join(worker, store, backend)
        _work(worker)
        if plan.pairs and world > 1:
            links = time_pairs(worker, board)
    except (RuntimeError, TimeoutError) as error:
        worker.report.failed = _first_sentence(str(error))
    return finish(links)


def _join(worker: Worker, store: Store, backend: str) -> None:
    # NCCL's watchdog ends the process: our own limit is shorter, so that the rank can report before that.
    limit = worker.plan.timeout if backend == "gloo" else 4 * (worker.plan.timeout + _GRACE_S)
    dist.init_process_group(
        backend, store=store, rank=worker.rank, world_size=worker.world, timeout=timedelta(seconds=limit)
    )
    worker.make_groups()


def _first_sentence(error: str) -> str:
    """Without the backend's source location at the beginning."""
    return re.sub(r"^\[[^\]]*\] *", "", error).partition("\n")[0].partition(". ")[0][:300]


def _work(worker: Worker) -> None:
    told = 0.0
    for test in worker.tests:
        worker.run_test(test)
        if worker.rank == 0 and time.monotonic() > told + 1:
            told = time.monotonic()
            print(f"forkpoint: {test.number + 1}/{len(worker.tests)} {test.label}", file=sys.stderr, flush=True)


class _Finish:
    """Ends a rank, from whichever thread gets there first."""

    def __init__(self, args: Namespace, worker: Worker, board: Board, backend: str) -> None:
        self.args = args
        self.worker = worker
        self.board = board
        self.backend = backend
        self.begun = threading.Lock()

    def __call__(self, links: Links) -> int:
        if not self.begun.acquire(blocking=False):
            threading.Event().wait()  # the watching thread does it, and ends the process
        self.board.post("report", self.worker.report.to_json())
        if self.worker.rank:
            self.board.wait("printed", [0], 2 * (self.worker.plan.timeout + _GRACE_S))
            return 0
        plan, everybody = self.worker.plan, range(self.worker.world)
        told = self.board.wait("report", everybody, plan.timeout + _GRACE_S)
        heard = RanksHeard(
            reports=tuple(read_report(text) for text in told.values()),
            hosts=self.board.wait("host", everybody, 0),
            at=self.board.wait("at", everybody, 0),
        )
        result = assemble(plan, self.worker.world, heard, links, backend=self.backend, torch=torch.__version__)
        self._print(result)
        self.board.post("printed", "")
        time.sleep(_POLL_S)  # the rank that hosts the store must not leave first
        return 0 if result.good else 1

    def _print(self, result: CollectivesResult) -> None:
        if self.args.perfetto:
            self.args.perfetto.write_text("".join(export_result(result)))
        print(result_json(result) if self.args.json else result_text(result), flush=True)


def _watch(worker: Worker, finish: _Finish) -> None:
    """Ends a rank that makes no progress, or whose parent is gone."""
    parent = os.getppid()
    limit = worker.plan.timeout + _GRACE_S
    while os.getppid() == parent:
        time.sleep(_POLL_S)
        if time.monotonic() > worker.since + limit and not finish.begun.locked():
            worker.report.failed = f"it has made no progress for {limit:.0f} s"
            os._exit(finish(Links()))
    os._exit(1)


def _device(backend: str) -> torch.device:
    if backend == "gloo":
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _log_choices(folder: Path) -> Path:
    """Makes NCCL log its choices to a file of this rank, unless the user has set a file."""
    given = os.environ.get("NCCL_DEBUG_FILE")
    if given is None:
        given = str(folder / "nccl.log")
        os.environ |= {"NCCL_DEBUG_FILE": given, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING"}
    return Path(given)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks on one machine, forked from one process that has imported torch: eight of them start as fast as one.

_FINISHED = (0, 1)
"""Exit codes of a rank that finished: nothing found, something found."""
_LOST = 4
_END_S = 2
_REAP_S = 0.05


def fork_ranks(world: int, backend: str | None, run: Callable[[], int]) -> int:
    """Returns the exit code of rank 0. No rank is left, however this ends."""
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    children = {_fork({**shared, **_of_rank(rank, world, backend)}, run): rank for rank in range(world)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _wait_for_first(children)
    finally:
        _end(children)


def _wait_for_first(children: dict[int, int]) -> int:
    """Removes the ranks that ended from `children` (pid -> rank)."""
    while True:
        pid, status = os.wait()
        rank, ended = children.pop(pid), os.waitstatus_to_exitcode(status)
        if ended not in _FINISHED:
            said = f"forkpoint: rank {rank} ended with {ended} before it could report"
            print(said, file=sys.stderr, flush=True)
        if rank == 0:
            return ended if ended in _FINISHED else _LOST


def _end(children: dict[int, int]) -> None:
    """They end by themselves when rank 0 has printed; those that do not are killed."""
    deadline = time.monotonic() + _END_S
    left = set(children)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        time.sleep(_REAP_S)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _of_rank(rank: int, world: int, backend: str | None) -> dict[str, str]:
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if backend == "gloo" or count_gpus() >= world:
        return own
    return {**own, **SHARED_GPU, "NCCL_HOSTID": f"node{rank}"}


def _fork(env: dict[str, str], run: Callable[[], int]) -> int:  # pyrefly: ignore[bad-return] - the child never returns
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(env)
    code = _LOST
    try:
        code = run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
