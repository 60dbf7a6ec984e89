"""One attempt: started with recording on, ended whole, its evidence waited for and judged."""

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.live.diagnosing import ANY_NODE, Decision, DecisionTask, Diagnosed, NotDiagnosed, Task, diagnose
from forkpoint.model.ranks_file import render_ranks
from forkpoint.run.folders import DUMP_PREFIX, AttemptFolder, make_attempt_folder, node_name, remove_attempt_folder
from forkpoint.run.hang import HangWatch
from forkpoint.run.job import JobEnd, JobProcess, JobStart
from forkpoint.run.launcher import Launch, plan_launch
from forkpoint.run.outcome import Attempt
from forkpoint.run.processes import end_processes
from forkpoint.run.recording import fetch_dumps, guarding, naming, recording
from forkpoint.run.stillness import wait_until_still
from forkpoint.run.torch_release import find_torch

ATTEMPT_VARIABLE = "FORKPOINT_ATTEMPT"

_ENDED = "ranks.json"
"""Beside the logs of each node: how the command ended there."""
_LEFT_GRACE_S = 5.0
"""For processes that the job itself left behind."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    folder: Path = Path("forkpoint-runs")
    source: tuple[str, ...] = ()
    dumps_s: float = 30.0
    """How long dumps may take once the job has ended."""
    grace_s: float = 15.0
    hang_s: float | None = None
    keep: bool = False
    """The folder of an attempt that succeeded, too."""
    width: int = 100
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def attempt_job(command: Sequence[str], name: str, number: int, settings: RunSettings) -> Attempt:
    launch = plan_launch(command, settings.environ)
    place = make_attempt_folder(
        settings.folder, name, number, node_name(settings.environ) if launch.is_local else ANY_NODE
    )
    start = _start(launch, place, number, settings)
    began = time.time()
    job = JobProcess(start)
    try:
        ended, alarm = _run(job, place, settings)
    except UsageError:  # there is no such command
        remove_attempt_folder(place)
        raise
    is_success = ended.code == 0 and alarm is None
    told_to_stop = ended.stopped_by is not None and alarm is None
    try:
        if not (is_success or told_to_stop):
            wait_until_still(place.attempt, settings.dumps_s)
            fetch_dumps(place, settings.environ, began)
    finally:  # somebody may lose patience with us
        left = tuple(sorted(end_processes(start.run, min(settings.grace_s, _LEFT_GRACE_S))))
    job.finish_copies()
    told = render_ranks(None, None, stalled=False, exit_code=ended.code)
    (place.node / _ENDED).write_text(told, encoding="utf-8")
    if is_success:
        kept = settings.keep or not remove_attempt_folder(place)
        return Attempt(number, place.attempt, ended, Decision(0, "it succeeded"), left=left, kept=kept)
    if told_to_stop:
        return Attempt(number, place.attempt, ended, Decision(ended.code, "it was told to stop"), left=left)
    found, decision = _judge(place, alarm, ended.code or 1, settings)
    return Attempt(number, place.attempt, ended, decision, found, hung=alarm is not None, left=left)


def _start(launch: Launch, place: AttemptFolder, number: int, settings: RunSettings) -> JobStart:
    environ = dict(settings.environ)
    release = find_torch(launch.command, environ)
    environ |= naming(environ) | recording(str(place.dumps / DUMP_PREFIX), environ, release)
    if settings.hang_s is not None:
        environ |= guarding(place, environ, settings.hang_s, settings.source[0] if settings.source else None)
    environ[ATTEMPT_VARIABLE] = str(number)
    return JobStart(
        argv=launch.argv(place.logs),
        environ=environ,
        run=uuid.uuid4().hex,
        logs=place.logs,
        copies_stdout=not launch.writes_logs,
        grace_s=settings.grace_s,
    )


def _run(job: JobProcess, place: AttemptFolder, settings: RunSettings) -> tuple[JobEnd, Path | None]:
    """How it ended; the guard's folder, if it was ended because it hung."""
    if settings.hang_s is None:
        return job.run(), None
    watch = HangWatch(place, settings.hang_s, job.stop)
    watch.begin()
    try:
        ended = job.run()
    finally:
        watch.end()
    return ended, watch.alarm if ended.stopped_by is not None else None


def _judge(
    place: AttemptFolder, alarm: Path | None, child_code: int, settings: RunSettings
) -> tuple[Diagnosed | None, Decision]:
    """A job that was ended because it hung is judged by what the guard saw, not by how its ranks then ended."""
    wanted = DecisionTask(str(place.attempt), child_code)
    task = Task((str(alarm or place.attempt),), settings.source, report_width=settings.width, decision=wanted)
    found = diagnose(task)
    if isinstance(found, NotDiagnosed):
        return None, Decision(child_code, f"not diagnosed: {found.why}")
    assert found.decision is not None  # it was asked for
    return found, found.decision
