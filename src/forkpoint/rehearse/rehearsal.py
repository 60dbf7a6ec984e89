"""A whole rehearsal: calm run, plan, and trials until all are done or the time is up."""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from forkpoint.errors import ForkpointError, UsageError
from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.fake import Pretended, run_pretended, sample_ranks
from forkpoint.rehearse.model import (
    HASH_SEED,
    OLDER,
    RESUMED,
    Calm,
    RankUses,
    Rehearsal,
    RunMode,
    RunOrder,
    Trial,
    TrialResult,
    TrialTarget,
    Use,
    UseKind,
    read_value,
)
from forkpoint.rehearse.outcome import read_alarm, tell_errors
from forkpoint.rehearse.perturbation import Disturbance
from forkpoint.rehearse.perturbations import PERTURBATIONS
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.run import Ended, RehearsedJob, RunLimits, UserProgram, common_environ, run_job
from forkpoint.rehearse.trial import Stage, run_trial, verify_fix
from forkpoint.rehearse.workspace import Workspace, scratch_folder, workspace

Progress = Callable[[int, int, str], None]
"""Gets (trials done, total, current activity)."""
Heard = Callable[[TrialResult], None]
"""Called with each result as it comes."""


@dataclass(frozen=True, slots=True)
class RehearsalSettings:
    minutes: float = 5.0
    most_trials: int | None = None
    only: tuple[str, ...] = ()
    """Kinds; () = all."""
    ranks: tuple[int, ...] | None = None
    """Ranks to disturb; None: chosen by role."""
    seed: int = 0
    trial: int | None = None
    """Run only this one."""
    known: Rehearsal | None = None
    """An earlier rehearsal, whose calm run and plan are reused."""
    warm: bool = True
    starter: WarmStart | None = None
    """An existing one, to share between rehearsals."""
    cpu: bool = False
    verify: bool = False
    keep: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def rehearse(program: UserProgram, settings: RehearsalSettings, progress: Progress, heard: Heard) -> Rehearsal:
    """Raises CalmRunFailed if the job does not even run undisturbed."""
    began = time.monotonic()
    until = began + settings.minutes * 60
    wanted = [p for p in PERTURBATIONS if not settings.only or p.kind in settings.only]
    with _starter(program, settings, progress) as starter, scratch_folder() as resumed:
        job = RehearsedJob(program, settings.environ, starter, settings.cpu)
        calm = settings.known.calm if settings.known else _calm(job, settings, progress, resumed / "work")
        if program.starts_itself:
            job = replace(job, program=replace(program, ranks=calm.world))
        if settings.known:
            plan = settings.known.plan
        else:
            plan = plan_trials(calm, Decisions([str(program.folder)]), wanted, settings.ranks, settings.seed)
        chosen = [trial for trial in plan if _is_chosen(trial, settings)][: settings.most_trials]
        if settings.known and any(RESUMED in trial.target.settings for trial in chosen):
            _calm(job, settings, progress, resumed / "work")
        stage = Stage(job, program.folder, calm, settings.keep, resumed / "work")
        results = _run_all(chosen, stage, until, progress, heard, verify=settings.verify)
    skipped = _skipped(wanted, plan)
    return Rehearsal(program.command, settings.seed, calm, plan, results, time.monotonic() - began, skipped)


def pretend(program: UserProgram, settings: RehearsalSettings, world: int, progress: Progress) -> Pretended:
    """`--world N --fake`."""
    if program.starts_itself:
        raise UsageError("--fake starts ranks by itself: give torchrun or python with your script")
    ranks = sample_ranks(world)
    with _starter(program, settings, progress) as starter:
        job = RehearsedJob(replace(program, ranks=len(ranks)), settings.environ, starter, settings.cpu)
        progress(0, 0, f"{len(ranks)} of {world} ranks, each alone")
        return run_pretended(job, world, ranks, settings.minutes * 60)


@contextmanager
def _starter(program: UserProgram, settings: RehearsalSettings, progress: Progress) -> Generator[WarmStart | None]:
    """None: ranks are new processes, or the command starts them."""
    if program.starts_itself or not settings.warm or settings.starter is not None:
        yield settings.starter
        return
    progress(0, 0, "importing torch")
    with scratch_folder() as scratch:
        starter = WarmStart(program.interpreter, {**common_environ(settings.environ), "TMPDIR": str(scratch)})
        try:
            yield starter
        finally:
            starter.end()


def _calm(job: RehearsedJob, settings: RehearsalSettings, progress: Progress, resumed: Path) -> Calm:
    """`resumed`: gets a copy of the folder after the run, if a second run could resume from it."""
    progress(0, 0, "calm run")
    limit_s = settings.minutes * 60 / 3
    with workspace(job.program.folder) as place:
        calm = run_calm(job, place, limit_s)
        if not saves(calm):
            return calm
        progress(0, 0, "calm run, resumed")
        shutil.copytree(place.work, resumed, symlinks=True)
        return run_resumed(job, place, calm, limit_s)


def _is_chosen(trial: Trial, settings: RehearsalSettings) -> bool:
    if settings.trial is not None:
        return trial.number == settings.trial
    named = not settings.only or trial.kind in settings.only
    return named and (settings.ranks is None or trial.rank in settings.ranks)


def _run_all(
    trials: Sequence[Trial], stage: Stage, until: float, progress: Progress, heard: Heard, *, verify: bool
) -> tuple[TrialResult, ...]:
    """Runs at least one trial, then more until the time is up."""
    results: list[TrialResult] = []
    for done, trial in enumerate(trials):
        if results and time.monotonic() > until:
            break
        progress(done, len(trials), trial.name)
        result = run_trial(trial, stage)
        results.append(verify_fix(result, stage) if verify else result)
        heard(results[-1])
    return tuple(results)


def _skipped(wanted: Sequence[type[Disturbance]], plan: Sequence[Trial]) -> tuple[str, ...]:
    planned = {trial.kind for trial in plan}
    return tuple(f"{p.kind}: {p.otherwise}" for p in wanted if p.kind not in planned)


# ---------------------------------------------------------------------------------------------------------------------
# The calm run: does the job run at all, how long, and which rank-local things does it use?


_STALL_S: Final = 60.0
"""Long, because nothing is known about the job yet: its first step may compile for a while."""


class CalmRunFailed(ForkpointError):
    """The job does not run undisturbed, so there is nothing to rehearse."""


def run_calm(job: RehearsedJob, place: Workspace, limit_s: float) -> Calm:
    """`limit_s`: a job that takes longer is ended; what it has used so far counts."""
    order = RunOrder(RunMode.CALM, str(place.told), (str(place.work),), cpu=job.cpu)
    ended = run_job(job, order, place, RunLimits(limit_s, min(_STALL_S, limit_s), steps_after=False))
    told = [read_value(path, RankUses) for path in sorted(place.told.glob("uses_rank_*.json"))]
    ranks = merge_workers([uses for uses in told if uses is not None])
    _check(ended, ranks, place)
    return Calm(ranks, ended.seconds, complete=ended.why == "all ended")


def merge_workers(told: Iterable[RankUses]) -> tuple[RankUses, ...]:
    """One for each rank, which comes before its loaders' workers: their uses are added to its own."""
    ranks: dict[int, RankUses] = {}
    for process in told:
        rank = ranks.setdefault(process.rank, process)
        if rank is not process:
            ranks[process.rank] = replace(rank, uses=tuple(_add_up([*rank.uses, *process.uses])))
    return tuple(ranks[rank] for rank in sorted(ranks))


def _add_up(uses: Iterable[Use]) -> Iterable[Use]:
    found: dict[tuple[str, str, int, str], Use] = {}
    for use in uses:
        known = found.get(use.key)
        found[use.key] = replace(known, count=known.count + use.count) if known else use
    return found.values()


def saves(calm: Calm) -> bool:
    """It wrote files and looks for files, so a second run may resume."""
    asks = any(calm.uses(kind) for kind in (UseKind.EXISTS, UseKind.LISTING, UseKind.LOAD))
    return calm.complete and asks and bool(calm.uses(UseKind.WRITE))


def run_resumed(job: RehearsedJob, place: Workspace, calm: Calm, limit_s: float) -> Calm:
    """Runs the job again in the same folder. Returns the first calm run, plus what the second one used."""
    for path in place.told.iterdir():
        if path.is_file():
            path.unlink()
    try:
        again = run_calm(job, place, limit_s)
    except CalmRunFailed:  # it cannot resume; the first run is still valid
        return calm
    read = {told.rank: tuple(_resumed(told, place)) for told in again.ranks}
    ranks = tuple(replace(told, uses=(*told.uses, *read.get(told.rank, ()))) for told in calm.ranks)
    return replace(calm, ranks=ranks, again=again.ranks)


def _resumed(told: RankUses, place: Workspace) -> Iterator[Use]:
    for use in told.uses:
        if use.kind is UseKind.LOAD:
            older = Path(OLDER) / Path(use.what).name
            version = str(older) if (place.work / older).is_file() else ""
            yield replace(use, facts={RESUMED: version})


def _check(ended: Ended, ranks: tuple[RankUses, ...], place: Workspace) -> None:
    if any(ended.codes.values()):
        raise CalmRunFailed(f"the calm run failed, before anything was disturbed: {tell_errors(ended, place.logs)}")
    if ended.alarm is not None:
        found = read_alarm(ended.alarm)
        says = found["summary"] if found else "see its logs"
        raise CalmRunFailed(f"the calm run hangs, before anything was disturbed: {says}")
    if not ranks:
        raise CalmRunFailed(
            "no rank created a process group: the command must start ranks that call init_process_group, with forkpoint installed "
            f"in their environment{_last_words(place.logs)}"
        )
    missing = sorted(set(range(ranks[0].world)) - {told.rank for told in ranks})
    if missing:
        raise CalmRunFailed(f"ranks {missing} of {ranks[0].world} did not report; do all ranks run on this machine?")
    if len(ranks) < 2:
        raise CalmRunFailed("the job has only one rank: use --ranks")


def _last_words(logs: Path) -> str:
    for log in sorted(logs.iterdir()):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return f" (the last line of {log.name}: {lines[-1][:200]})"
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# The plan: trials for what the calm run used, the most useful first.


_EARLY: Final = 3
"""An early disturbance is at one of the first three occasions: such a trial ends early."""


def plan_trials(
    calm: Calm, decisions: Decisions, perturbations: Sequence[type[Disturbance]], ranks: Sequence[int] | None, seed: int
) -> tuple[Trial, ...]:
    """First one rank for each target, kind by kind in turn; then the other ranks. Trials that need a new process take as long as
    a few others, so for the other ranks they come last, and for the first after its other trials if the source has no sets.
    """
    chosen = tuple(ranks) if ranks is not None else choose_ranks(calm)
    rounds = [[*_in_turn(calm, decisions, perturbations, chosen, turn)] for turn in range(len(chosen))]
    trials: list[Trial] = []
    tried: Counter[str] = Counter()
    planned = [(turn, *item) for turn, items in enumerate(rounds) for item in items]

    def stage(item: tuple[int, str, int, TrialTarget]) -> int:
        turn, _, _, target = item
        if HASH_SEED not in target.settings:
            return 2 * (turn > 0)
        return 3 if turn else int(not decisions.has_sets())

    for turn, kind, rank, target in sorted(planned, key=stage):
        luck = random.Random(f"{seed}/{kind}/{target.site}/{target.label}/{rank}")  # noqa: S311 replayed, not secret
        moment = choose_moment(target, luck, early=(turn == 0) != calm.is_short, phase=tried[kind])
        trials.append(Trial(len(trials) + 1, kind, rank, target, moment, seed))
        tried[kind] += 1
    return tuple(trials)


def choose_moment(target: TrialTarget, luck: random.Random, *, early: bool, phase: int) -> int:
    """The occasion at which the disturbance begins. In a long job the first rank is disturbed early, and later ones in the middle
    of the run. In a short job, which runs to its end anyway, it is the other way round: a program that warms up, or compares a
    value with earlier ones, does not react to an early disturbance. The last occasion is avoided if there are several: ranks may
    have nothing left to disagree on. `phase`: trials of one kind are right before a step of the optimizer and elsewhere in turn,
    because a program that accumulates gradients communicates only there; at odd and even occasions if nothing is known of that.
    """
    early_ones, third, rhythm = max(_EARLY, target.per_step), target.occurrences // 3, max(2, target.per_step)
    if early or third <= early_ones:
        moments = range(min(early_ones, max(1, target.occurrences - 1)))
    else:
        moments = range(third, 2 * third)
    wanted = [moment for moment in moments if (moment % rhythm == rhythm - 1) == (phase % 2 == 0)]
    return luck.choice(wanted or moments)


def _in_turn(
    calm: Calm, decisions: Decisions, perturbations: Sequence[type[Disturbance]], chosen: Sequence[int], turn: int
) -> Iterator[tuple[str, int, TrialTarget]]:
    by_kind = [
        [
            (p.kind, rank, target)
            for target in _new_ones_first(p.find(calm, decisions))
            if (rank := _rank_for(target, chosen, turn)) is not None
        ]
        for p in perturbations
    ]
    for row in zip_longest(*by_kind):
        yield from (item for item in row if item is not None)


def _new_ones_first(targets: Iterable[TrialTarget]) -> list[TrialTarget]:
    """The same is done at the same line once, before it is done to the other calls and files of that line."""
    repeats: Counter[str] = Counter()
    numbered: list[tuple[int, TrialTarget]] = []
    for target in targets:
        same = f"{target.site} {sorted(target.settings.items())}"
        numbered.append((repeats[same], target))
        repeats[same] += 1
    return [target for _, target in sorted(numbered, key=lambda pair: pair[0])]


def _rank_for(target: TrialTarget, chosen: Sequence[int], turn: int) -> int | None:
    """The `turn`-th of the chosen ranks that have the target. If none of them has it, the first rank that does."""
    ranks = [rank for rank in chosen if rank in target.ranks] or list(target.ranks[:1])
    return ranks[turn] if turn < len(ranks) else None


def choose_ranks(calm: Calm) -> tuple[int, ...]:
    """The middle rank, the first, the last, and one of every other role."""
    world = calm.world
    wanted = [world // 2, 0, world - 1]
    roles = {told.rank: _role(told) for told in calm.ranks}
    for rank, role in roles.items():
        if role not in {roles[known] for known in wanted}:
            wanted.append(rank)
    return tuple(dict.fromkeys(wanted))


def _role(told: RankUses) -> tuple[object, ...]:
    """What a rank does: the sizes of its groups, its positions in them, and the source lines it executes."""
    places = tuple((len(group), group.index(told.rank)) for group in told.groups if len(group) < told.world)
    return places, told.lines
