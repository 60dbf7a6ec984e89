"""One attempt: start the job with recording on, end all its processes, wait for evidence, diagnose it, decide on a retry.

`--hang-after` ends a job once the guard inside its ranks has written their dumps and nothing moves (`live/stall.py`). The
outcome as JSON has the schema `forkpoint.run/1`, `run.schema.json` beside this file.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread

from forkpoint.errors import UsageError
from forkpoint.live.children import (
    ANY_NODE,
    DO_NOT_RETRY,
    RETRY_ELSEWHERE,
    Decision,
    DecisionTask,
    Diagnosed,
    NotDiagnosed,
    StoreTask,
    Task,
    diagnose,
)
from forkpoint.live.run.job import JobEnd, JobProcess, JobStart, end_processes
from forkpoint.live.run.start import (
    DUMP_PREFIX,
    AttemptFolder,
    Launch,
    fetch_dumps,
    find_torch,
    guarding,
    make_attempt_folder,
    naming,
    node_name,
    plan_launch,
    recording,
    remove_attempt_folder,
)
from forkpoint.live.stall import Stillness, has_stalled
from forkpoint.model.world import render_ranks
from forkpoint.sinks.notice import origin_of

# ---------------------------------------------------------------------------------------------------------------------
# The outcome of a run, and its JSON.

SCHEMA = "forkpoint.run/1"


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    folder: Path
    """Evidence of all nodes."""
    ended: JobEnd
    decision: Decision
    found: Diagnosed | None = None
    hung: bool = False
    """Nothing moved for `--hang-after`, so it was ended."""
    left: tuple[int, ...] = ()
    """Processes that even a kill did not end."""
    kept: bool = True
    """False: it succeeded, and the folder was removed."""

    @property
    def told_to_stop(self) -> bool:
        return self.ended.stopped_by is not None and not self.hung


def render_outcome(name: str, attempts: Sequence[Attempt], decision: Decision) -> str:
    told = {
        "schema": SCHEMA,
        "run": name,
        "decision": asdict(decision),
        "attempts": [_attempt(attempt) for attempt in attempts],
    }
    return json.dumps(told, indent=2)


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "attempt": attempt.number,
        "folder": str(attempt.folder) if attempt.kept else None,
        "exit_code": attempt.ended.code,
        "stopped_by": attempt.ended.stopped_by,
        "hung": attempt.hung,
        "seconds": round(attempt.ended.seconds, 3),
        "processes_left": list(attempt.left),
        "step": attempt.found.step if attempt.found else None,
        "decision": asdict(attempt.decision),
        "verdict": json.loads(attempt.found.document) if attempt.found else None,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Waiting until the evidence is complete: bounded, and only as long as something is still being written.

_QUIET_S = 1.5
"""torch writes a dump in one piece, within milliseconds of opening its file; a shared disk shows it a second later."""
_POLL_S = 0.25


def wait_until_still(folder: Path, limit_s: float) -> bool:
    """Waits until no file below `folder` has changed for a moment. False: they still change after `limit_s`."""
    until = time.monotonic() + limit_s
    files = Stillness(folder_state(folder), time.monotonic())
    while files.see(folder_state(folder), time.monotonic()) < min(_QUIET_S, limit_s):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def folder_state(folder: Path) -> tuple[int, int]:
    """Numbers of files and bytes. No modification times: clocks of different machines cannot be compared."""
    count = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 one per rank, several times a second
            except OSError:  # replaced just now
                continue
            count += 1
    return count, size


# ---------------------------------------------------------------------------------------------------------------------
# `--hang-after`: the guard inside the ranks has written their dumps, and nothing moves any more.
#
# Only the guard knows whether ranks move. An alarm that it raises at once (mismatched calls) need not be a hang: then
# the job hangs once no rank has logged anything for as long as the user chose (`live/stall.py`).

_LOOK_S = 1.0


@dataclass(slots=True)
class HangWatch:
    """Looks once a second, from its own thread, until `end`."""

    place: AttemptFolder
    hang_s: float
    on_hang: Callable[[], None]
    alarm: Path | None = None
    """The guard's folder, once the job was found to hang."""
    _over: Event = field(default_factory=Event)

    def begin(self) -> None:
        Thread(target=self._look, daemon=True, name="hang-watch").start()

    def end(self) -> None:
        self._over.set()

    def _look(self) -> None:
        logs = Stillness(folder_state(self.place.logs), time.monotonic())
        while not self._over.wait(_LOOK_S):
            alarm = find_alarm(self.place.guard)
            quiet_s = logs.see(folder_state(self.place.logs), time.monotonic())
            if alarm and is_hang(alarm, quiet_s, self.hang_s):
                self.alarm = alarm
                self.on_hang()
                return


def find_alarm(guard: Path) -> Path | None:
    """The last folder that is complete: the guard writes its verdict last."""
    found = sorted(path.parent for path in guard.glob("*/verdict.json"))
    return found[-1] if found else None


def is_hang(alarm: Path, quiet_s: float, hang_s: float) -> bool:
    """`quiet_s`: for how long no rank has logged anything."""
    return has_stalled(quiet_s, hang_s, waiting=True) or _guard_saw_stall(alarm)


def _guard_saw_stall(alarm: Path) -> bool:
    try:
        return json.loads((alarm / "ranks.json").read_text())["stalled"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


# ---------------------------------------------------------------------------------------------------------------------
# One attempt.

ATTEMPT_VARIABLE = "FORKPOINT_ATTEMPT"
STORE_VARIABLE = "FORKPOINT_STORE"
NOTIFY_VARIABLE = "FORKPOINT_NOTIFY"

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
    """Also keep the folder of an attempt that succeeded."""
    store: str | None = None
    """Where incidents are kept."""
    notifies: bool = False
    """Make a notice for services."""
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
    finally:  # the user may press Ctrl-C during the wait
        left = tuple(sorted(end_processes(start.run, min(settings.grace_s, _LEFT_GRACE_S))))
    job.finish_copies()
    told = render_ranks(None, None, stalled=False, exit_code=ended.code)
    with suppress(OSError):  # the disk is full, which was reported for the logs
        (place.node / _ENDED).write_text(told, encoding="utf-8")
    if is_success:
        kept = settings.keep or not remove_attempt_folder(place)
        return Attempt(number, place.attempt, ended, Decision(0, "it succeeded"), left=left, kept=kept)
    if told_to_stop:
        return Attempt(number, place.attempt, ended, Decision(ended.code, "it was told to stop"), left=left)
    store = StoreTask(settings.store, place.attempt.parent.name, number) if settings.store else None
    found, decision = _judge(alarm or place.attempt, DecisionTask(str(place.attempt), ended.code or 1), settings, store)
    return Attempt(number, place.attempt, ended, decision, found, hung=alarm is not None, left=left)


def _start(launch: Launch, place: AttemptFolder, number: int, settings: RunSettings) -> JobStart:
    environ = dict(settings.environ)
    release = find_torch(launch.command, environ)
    environ |= naming(environ) | recording(str(place.dumps / DUMP_PREFIX), environ, release)
    if settings.hang_s is not None:
        environ |= guarding(place, environ, settings.hang_s, settings.source[0] if settings.source else None)
    environ[ATTEMPT_VARIABLE] = str(number)
    if settings.store:  # we keep the incident, so the guard inside must not
        environ[STORE_VARIABLE] = ""
    if settings.notifies:  # likewise
        environ[NOTIFY_VARIABLE] = ""
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
    evidence: Path, wanted: DecisionTask, settings: RunSettings, store: StoreTask | None
) -> tuple[Diagnosed | None, Decision]:
    """A job that was ended because it hung is judged by what the guard saw, not by how its ranks then ended."""
    task = Task(
        (str(evidence),),
        settings.source,
        report_width=settings.width,
        decision=wanted,
        store=store,
        origin=origin_of("run", settings.environ, node_name(settings.environ), str(evidence))
        if settings.notifies
        else None,
    )
    found = diagnose(task)
    if isinstance(found, NotDiagnosed):
        return None, Decision(wanted.child_code, f"not diagnosed: {found.why}")
    assert found.decision is not None  # it was asked for
    return found, found.decision


def claim_telling(attempt: Attempt) -> bool:
    """True on one of the nodes that share the folder: the first to create this file. On all if it cannot be created."""
    try:
        attempt.folder.with_name(f".told-{attempt.folder.name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Whether a job is tried again, and when: pure functions of how its attempts ended.

MAX_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    wait_s: float


def next_step(attempts: Sequence[Attempt], retries: int, back_off_s: float, chance: float) -> Retry | Decision:
    """After a failed attempt. `chance`, 0 to 1, is jitter: jobs that failed together must not restart together."""
    last = attempts[-1]
    decision = last.decision
    if retries == 0 or last.told_to_stop or decision.code == DO_NOT_RETRY:
        return decision
    if decision.code == RETRY_ELSEWHERE:
        return Decision(decision.code, f"{decision.why}; only the scheduler can choose other nodes", decision.nodes)
    if len(attempts) > 1 and repeats(attempts[-2], last):
        return Decision(DO_NOT_RETRY, f"the same failure again, without progress: {decision.why}", decision.nodes)
    if len(attempts) > retries:
        return Decision(decision.code, f"{decision.why}; all {retries} retries are used", decision.nodes)
    return Retry(min(MAX_WAIT_S, back_off_s * 2 ** (len(attempts) - 1)) * (0.5 + chance / 2))


def repeats(before: Attempt, now: Attempt) -> bool:
    """The same cause with the same suspects, and no progress. Inconclusive failures never count as the same."""
    one, other = before.found, now.found
    if one is None or other is None or other.cause == "inconclusive":
        return False
    return (one.cause, one.suspects) == (other.cause, other.suspects) and not _came_further(one, other)


def _came_further(one: Diagnosed, other: Diagnosed) -> bool:
    """Training steps continue from a checkpoint. Seqs restart, so they count only if the logs show no steps."""
    if one.step is not None and other.step is not None:
        return other.step > one.step
    return one.seq is not None and other.seq is not None and other.seq > one.seq


# ---------------------------------------------------------------------------------------------------------------------
# Decision -> scheduler commands that exclude the named nodes. They are printed, never run.
#
# Node names come from evidence, so anything that is not a plain host name is left out.

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def commands_for(decision: Decision, environ: Mapping[str, str]) -> tuple[str, ...]:
    """For the scheduler that we run under; none if it is unknown."""
    nodes = [node for node in decision.nodes if _HOST.fullmatch(node)]
    if not nodes:
        return ()
    if environ.get("SLURM_JOB_ID"):
        listed = ",".join(nodes)
        return (
            f"sbatch --exclude={listed} ...   # only your next job",
            f'scontrol update nodename={listed} state=drain reason="forkpoint, job {_job(environ)}"   # all jobs',
        )
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return (f"kubectl cordon {' '.join(nodes)}   # no new pods there",)
    return ()


def _job(environ: Mapping[str, str]) -> str:
    return re.sub(r"\W", "", environ["SLURM_JOB_ID"])
