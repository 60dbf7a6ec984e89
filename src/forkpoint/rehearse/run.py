"""One run of the job, calm or disturbed: how its ranks are started, when there is nothing more to learn, and the end of all processes."""

import ast
import json
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from forkpoint.errors import UsageError
from forkpoint.live.processes import free_port
from forkpoint.live.run.attempt import find_alarm
from forkpoint.live.run.start import find_interpreter, split_torchrun
from forkpoint.rehearse.model import HASH_SEED, ORDER_VARIABLE, Effect, Left, RunMode, RunOrder, read_value, write_value
from forkpoint.rehearse.paths import read_steps
from forkpoint.rehearse.perturbation import EFFECT_FILE
from forkpoint.rehearse.ranks import ColdStart, RankStart, StartedRanks, StartsRanks
from forkpoint.rehearse.workspace import Workspace

# ---------------------------------------------------------------------------------------------------------------------
# How the user's command starts its ranks.


_OWN_LAUNCHERS: Final = frozenset({"spawn", "start_processes", "notebook_launcher", "elastic_launch", "launch"})
"""Functions with which a script starts its ranks itself."""
_FEW: Final = 4


@dataclass(frozen=True, slots=True)
class UserProgram:
    command: tuple[str, ...]
    """As the user gave it."""
    folder: Path
    """Where it is started."""
    ranks: int
    """0: the command decides."""
    interpreter: str = ""
    words: tuple[str, ...] = ()
    """The script, or -m and a module, with arguments: each rank runs the interpreter with them. (): the command starts its
    ranks itself.
    """

    @property
    def starts_itself(self) -> bool:
        return not self.words


def plan_program(
    command: Sequence[str], ranks: int | None, environ: Mapping[str, str], *, as_is: bool = False
) -> UserProgram:
    """We start the ranks of `torchrun` and `python script` ourselves; any other command runs as it is."""
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise UsageError(f"{command[0]}: no such command")
    whole, folder = tuple(command), Path.cwd()
    split = split_torchrun(command)
    interpreter = find_interpreter(command, environ)
    if as_is or interpreter is None or not interpreter.name.startswith("python"):
        return UserProgram(whole, folder, 0)
    if split is not None:
        own = split.value("--nproc-per-node")
        count = ranks or (int(own) if own.isdecimal() else _FEW)
        module = split.has("-m") or split.has("--module")
        if not split.script or split.has("--no-python"):
            return UserProgram(whole, folder, 0)
        return UserProgram(whole, folder, count, str(interpreter), (*(("-m",) if module else ()), *split.script))
    words = tuple(command[1:])
    if not Path(command[0]).name.startswith("python") or not words or words[0] == "-c":
        return UserProgram(whole, folder, 0)
    if words[0] != "-m" and (words[0].startswith("-") or _launches_itself(words[0])):
        return UserProgram(whole, folder, 0)
    return UserProgram(whole, folder, ranks or _FEW, str(interpreter), words)


def _launches_itself(script: str) -> bool:
    try:
        tree = ast.parse(Path(script).read_bytes())
    except OSError as error:
        raise UsageError(f"{script}: cannot be read ({error.strerror})") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script}: is not Python ({error})") from error
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called}
    return bool(names & _OWN_LAUNCHERS)


def rank_environ(rank: int, world: int, port: int, run: str) -> dict[str, str]:
    """The environment that torchrun sets on one node."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "ROLE_RANK": str(rank), "GROUP_RANK": "0",
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "ROLE_WORLD_SIZE": str(world), "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }  # fmt: skip


def common_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The same for all ranks: the user's own, with a common hash seed, and one thread each, as torchrun sets it."""
    wanted = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    kept = {name: value for name, value in environ.items() if not name.startswith(("TORCHELASTIC_", "FORKPOINT"))}
    return {**wanted, **kept}


# ---------------------------------------------------------------------------------------------------------------------
# One run.


_LOOK_S: Final = 0.05
_SETTLE_S: Final = 2.0
"""After a rank has failed, where torchrun would end the others: time for each to report its own error."""
_STEPS_AFTER: Final = 2
_IDLE_SHARE: Final = 0.25
"""Of a core: upper limit for ranks that all wait, with their guards."""
_IDLE_S: Final = 1.5
_IDLE_LOOKS: Final = 10
_IDLE_WANTED: Final = 0.5
_LAUNCHER: Final = -1
MOVED: Final = "forkpoint guard: the job moves again"
"""Said by the guard."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    seconds: float
    """For the whole run."""
    stall_s: float
    """Time without progress after which the guard reports a hang."""
    steps_after: bool
    """End two steps after the effect; otherwise run to the end of the job."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    seconds: float
    codes: Mapping[int, int]
    """Exit codes of ranks that ended by themselves."""
    order: tuple[int, ...]
    """Ranks in the order in which they ended."""
    alarm: Path | None
    """The guard's folder, if it raised an alarm."""
    effect: Effect | None
    left: tuple[Left, ...]
    """What ranks reported when their program ended."""
    steps: Mapping[int, int]
    why: str
    """What ended it: `all ended`, `failed`, `alarm`, `enough`, `limit`."""


@dataclass(frozen=True, slots=True)
class RehearsedJob:
    """The user's job, independent of a single run."""

    program: UserProgram
    environ: Mapping[str, str]
    starter: StartsRanks | None = None
    """None: every rank is a new process."""
    cpu: bool = False


def run_job(job: RehearsedJob, order: RunOrder, place: Workspace, limits: RunLimits) -> Ended:
    program = job.program
    write_value(place.told / "order.json", order)
    shared = {**common_environ(job.environ), **_switches(place, limits)}
    if job.cpu:
        shared["CUDA_VISIBLE_DEVICES"] = ""
    own = order.trial.target.settings if order.trial is not None else {}
    by = ColdStart(program.interpreter) if job.starter is None else job.starter
    began = time.monotonic()
    starts = _starts(program, place, shared)
    if order.mode is RunMode.FAKE:
        starts = [_pretending(start, order) for start in starts[: len(order.ranks)]]
    if order.trial is not None and HASH_SEED in own:
        starts = [_with_seed(start, own[HASH_SEED]) if start.rank == order.trial.rank else start for start in starts]
    ranks = by.start(starts)
    try:
        watch = _Watch(ranks, place, limits, program.ranks)
        why = watch.until_over()
    finally:
        ranks.end()
    return Ended(
        seconds=time.monotonic() - began,
        codes=watch.codes,
        order=watch.order,
        alarm=find_alarm(place.guard),
        effect=read_value(place.told / EFFECT_FILE, Effect),
        left=read_left(place.told),
        steps={rank: read_steps(place.told, rank) for rank in range(max(program.ranks, 1))},
        why=why,
    )


def read_left(told: Path) -> tuple[Left, ...]:
    found = [read_value(path, Left) for path in sorted(told.glob("left_rank_*.json"))]
    return tuple(left for left in found if left is not None)


def _switches(place: Workspace, limits: RunLimits) -> dict[str, str]:
    return {
        "FORKPOINT": "dump",
        "FORKPOINT_DIR": str(place.guard),
        "FORKPOINT_SOURCE": str(place.work),
        "FORKPOINT_EVERY_S": "0.2",
        "FORKPOINT_STALL_S": f"{limits.stall_s:g}",
        ORDER_VARIABLE: str(place.told / "order.json"),
        "TMPDIR": str(place.scratch),
    }


def _pretending(start: RankStart, order: RunOrder) -> RankStart:
    """With the environment of one rank of a large job, with one rank per node."""
    rank, world = str(order.ranks[start.rank]), str(order.world)
    own = {"RANK": rank, "WORLD_SIZE": world, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": world, "FORKPOINT": ""}
    return replace(start, environ={**start.environ, **own})


def _with_seed(start: RankStart, seed: str) -> RankStart:
    return replace(start, environ={**start.environ, HASH_SEED: seed}, anew=True)


def _starts(program: UserProgram, place: Workspace, shared: Mapping[str, str]) -> list[RankStart]:
    port, run = free_port(), uuid.uuid4().hex
    if program.starts_itself:
        environ = {**shared, "MASTER_PORT": str(port)}
        words = tuple(_moved(word, program, place) for word in program.command)
        return [RankStart(_LAUNCHER, words, environ, place.work, place.logs / "launcher.log")]
    words = tuple(_moved(word, program, place) for word in program.words)
    return [
        RankStart(
            rank,
            words,
            {**shared, **rank_environ(rank, program.ranks, port, run)},
            place.work,
            place.logs / f"log_rank_{rank}.txt",
        )
        for rank in range(program.ranks)
    ]


def _moved(word: str, program: UserProgram, place: Workspace) -> str:
    """Maps a path below the job's folder to the copy."""
    prefix = f"{program.folder}/"
    return f"{place.work}/{word[len(prefix) :]}" if word.startswith(prefix) else word


class _Watch:
    def __init__(self, ranks: StartedRanks, place: Workspace, limits: RunLimits, world: int) -> None:
        self._ranks = ranks
        self._place = place
        self._limits = limits
        self._world = world
        self._until = time.monotonic() + limits.seconds
        self._failed_at: float | None = None
        self._stalled_at: float | None = None
        self.codes: dict[int, int] = {}
        self.order: tuple[int, ...] = ()

    def until_over(self) -> str:
        while True:
            why = self._look()
            if why:
                self.codes, self.order = dict(self._ranks.codes), tuple(self._ranks.order)
                return why
            time.sleep(_LOOK_S)

    def _look(self) -> str:
        now = time.monotonic()
        if self._ranks.all_ended:
            return "all ended"
        if any(self._ranks.codes.values()) or any(left.error for left in read_left(self._place.told)):
            self._failed_at = self._failed_at or now
            if now > self._failed_at + _SETTLE_S:
                return "failed"
        alarm = find_alarm(self._place.guard)
        if alarm is not None and self._failed_at is None and (not is_stall(alarm) or self._hangs()):
            return "alarm"
        if self._limits.steps_after and self._has_gone_on():
            return "enough"
        return "limit" if now > self._until else ""

    def _has_gone_on(self) -> bool:
        effect = read_value(self._place.told / EFFECT_FILE, Effect)
        if effect is None:
            return False
        return all(read_steps(self._place.told, rank) >= effect.step + _STEPS_AFTER for rank in range(self._world))

    def _hangs(self) -> bool:
        self._stalled_at = self._stalled_at or time.monotonic()
        cpu_s, starved_s, wanted = self._ranks.cpu_s(), self._ranks.starved_s(), 0
        for _ in range(_IDLE_LOOKS):
            time.sleep(_IDLE_S / _IDLE_LOOKS)
            wanted += self._ranks.wants_a_core()
        load = RanksLoad(
            (self._ranks.cpu_s() - cpu_s) / _IDLE_S,
            (self._ranks.starved_s() - starved_s) / _IDLE_S,
            wanted / _IDLE_LOOKS,
        )
        lasts = time.monotonic() > self._stalled_at + self._limits.stall_s
        return load.shows_hang(lasts=lasts) and not moved_again(self._place.logs)


@dataclass(frozen=True, slots=True)
class RanksLoad:
    """What all ranks together did with the machine's cores for a moment."""

    used: float
    """Cores."""
    lacked: float
    """Cores that threads waited for; not a number if the kernel does not tell."""
    wanted: float
    """Share of the looks at which some thread ran or wanted to."""

    def shows_hang(self, *, lasts: bool) -> bool:
        """A stall is a hang and not a busy machine if the ranks are idle; or, because a rank that waits for its GPU keeps a core busy,
        if it lasts although they get the cores they want.
        """
        is_idle = self.used < _IDLE_SHARE and self.wanted <= _IDLE_WANTED
        return is_idle or (lasts and self.lacked < _IDLE_SHARE)


def moved_again(logs: Path) -> bool:
    """The guard withdrew its alarm: the job was only slow."""
    return any(MOVED in path.read_text(errors="replace") for path in logs.iterdir())


def is_stall(alarm: Path) -> bool:
    """The alarm is based only on time, not on mismatched calls."""
    try:
        cause = json.loads((alarm / "verdict.json").read_text())["cause"]
    except (OSError, ValueError, KeyError):
        return True
    return cause in ("host-stall", "straggler", "gpu-stall", "transport", "inconclusive")
