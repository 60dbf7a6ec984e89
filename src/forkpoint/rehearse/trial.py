"""One trial: runs the job again, with one rank disturbed."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from forkpoint.rehearse.model import RESUMED, Calm, Order, Result, RunMode, Trial
from forkpoint.rehearse.outcome import judge_trial
from forkpoint.rehearse.paths import find_fork
from forkpoint.rehearse.remedy import with_remedies
from forkpoint.rehearse.run import Ended, Limits, RehearsedJob, run_job
from forkpoint.rehearse.workspace import Workspace, workspace

_LEAST_STALL_S: Final = 8.0
_START_S: Final = 180.0
"""Time for four processes to import torch on a busy machine."""
_PATIENCE: Final = 3.0
"""Times the longest pause of the calm run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What all trials of a rehearsal share."""

    job: RehearsedJob
    origin: Path
    """The folder that is copied for each trial."""
    calm: Calm
    keep: Path | None
    """Where the evidence of trials in which ranks diverge is kept."""
    resumed: Path | None = None
    """The folder as the calm run left it, if a second run resumes."""


def run_trial(trial: Trial, stage: Stage) -> Result:
    resumes = RESUMED in trial.target.settings and stage.resumed is not None
    with workspace(stage.resumed if resumes and stage.resumed else stage.origin) as place:
        other = choose_other(trial.rank, stage.calm)
        order = Order(RunMode.TRIAL, str(place.told), (str(place.work),), trial, other, stage.job.cpu)
        limits = limits_for(stage.calm)
        if resumes:  # a rank that starts at another step makes the same calls until the others are done
            limits = replace(limits, steps_after=False)
        ended = run_job(stage.job, order, place, limits)
        site = ended.effect.site if ended.effect else None
        fork = find_fork(place.told, trial.rank, other, (site.file, site.line) if site else None)
        result = replace(judge_trial(trial, ended, place), fork=fork)
        if result.verdict is not None and result.fork is not None:
            result = replace(result, verdict=with_remedies(result.verdict, result.fork, [str(place.work)]))
        if result.verdict is not None and stage.keep is not None:
            result = replace(result, evidence=str(_keep(trial, ended, place, stage.keep)))
        return result


def choose_other(rank: int, calm: Calm) -> int:
    """The rank to compare with; if possible one with the same lines in the calm run, because work of rank 0 alone is no fork."""
    places = {told.rank: {use.key for use in told.uses if use.site.file} for told in calm.ranks}
    others = [other for other in places if other != rank]
    return next((other for other in others if places[other] == places[rank]), others[0])


def limits_for(calm: Calm) -> Limits:
    """The guard ends hangs. The time limit only protects against an overloaded machine, and decides nothing."""
    pause_s = max((told.longest_pause_s for told in calm.ranks), default=0.0)
    stall_s = max(_LEAST_STALL_S, _PATIENCE * pause_s)
    return Limits(
        seconds=10 * calm.seconds + 3 * stall_s + _START_S,
        stall_s=stall_s,
        steps_after=not calm.is_short,
    )


def _keep(trial: Trial, ended: Ended, place: Workspace, folder: Path) -> Path:
    """Dumps, stacks and logs, as `forkpoint diagnose` reads them."""
    target = folder / f"trial_{trial.number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copytree(place.logs, target / "logs")
    if ended.alarm is not None:
        shutil.copytree(ended.alarm, target / "ranks", ignore=shutil.ignore_patterns("verdict.json"))
    elif (place.told / "evidence").is_dir():
        shutil.copytree(place.told / "evidence", target / "ranks")
    return target
