"""A whole rehearsal: calm run, plan, and trials until all are done or the time is up."""

import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.rehearse.calm import run_calm, run_resumed, saves
from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.fake import Pretended, run_pretended, sample_ranks
from forkpoint.rehearse.launch import UserProgram, common_environ
from forkpoint.rehearse.model import RESUMED, Calm, Rehearsal, Trial, TrialResult
from forkpoint.rehearse.perturbation import Perturbation
from forkpoint.rehearse.perturbations import PERTURBATIONS
from forkpoint.rehearse.plan import plan_trials
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.run import RehearsedJob
from forkpoint.rehearse.trial import Stage, run_trial, verify_fix
from forkpoint.rehearse.workspace import scratch_folder, workspace

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


def _skipped(wanted: Sequence[Perturbation], plan: Sequence[Trial]) -> tuple[str, ...]:
    planned = {trial.kind for trial in plan}
    return tuple(f"{p.kind}: {p.otherwise}" for p in wanted if p.kind not in planned)
