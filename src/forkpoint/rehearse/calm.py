"""Runs the job once, undisturbed: does it run at all, how long, and which rank-local things does it use?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from forkpoint.errors import ForkpointError
from forkpoint.rehearse.model import OLDER, RESUMED, Calm, RankUses, RunMode, RunOrder, Use, UseKind, read_value
from forkpoint.rehearse.outcome import read_alarm, tell_errors
from forkpoint.rehearse.run import Ended, RehearsedJob, RunLimits, run_job
from forkpoint.rehearse.workspace import Workspace

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
