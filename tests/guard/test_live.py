"""Real gloo ranks, something goes wrong in them, and the guard says what; or nothing does, and it says nothing.

All jobs run at once, once: most of them wait most of the time. How quickly an alarm came is measured in bench/guard;
here it only has to come while the job still hangs or runs, which it does until then.
"""

import json
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

import forkpoint
from forkpoint.history.queries import ListedIncident, list_incidents
from forkpoint.history.store import open_store
from looping import for_each, is_swept
from warm import run

pytestmark = pytest.mark.torch

TESTS = Path(__file__).parent.parent
ALARM = r"^forkpoint guard: 20\S+Z "
STAYS_S = 3.0
"""After the first alarm, to see that there is no second."""


@dataclass(frozen=True)
class Job:
    name: str
    how: str
    who: int = 2
    world: int = 4
    at: int = 40
    pace_s: float = 0.03
    steps: int = 1_000_000
    seconds: float = 1000.0
    stepped: bool = False
    ends_itself: bool = False
    """Each rank ends as an interpreter does, not by the wrapper around it."""
    until: str = ALARM
    """What rank 0 says when there is nothing more to wait for; "" = all ranks end by themselves."""
    settings: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def script(self) -> str:
        told = asdict(self) | {"patient": True, "settings": {"every_s": 0.5, "stall_s": 60.0} | self.settings}
        here = str(Path(__file__).parent / "job.py")
        environ = self.environ | {"GUARD_JOB": json.dumps(told)}
        return f"import os, runpy\nos.environ.update({environ!r})\nrunpy.run_path({here!r}, run_name='__main__')\n"


STORE = "history.sqlite"
NOTICE = "notice.json"
PATIENCE_S = 300.0
JOBS = (
    Job("another call", "broadcast", until=r"^  evidence: ", settings={"mode": "dump"}),
    Job("another type", "dtype", who=1, until=""),
    Job(
        "a call skipped among equal ones",
        "skip",
        who=3,
        at=10,
        pace_s=0.3,  # ranks that answer a little apart have told of the same steps
        stepped=True,
        until=r"evidence: not kept",
        settings={"mode": "dump", "folder": "/dev/null/full"},
    ),
    Job(
        "raise mode",
        "broadcast",
        until="",
        settings={"mode": "raise", "store": STORE, "notify": ("command", "slack")},
        environ={"FORKPOINT_NOTIFY_COMMAND": f"tee {NOTICE}", "FORKPOINT_JOB": "pretrain"},
    ),
    Job("late for longer than the threshold", "sleep", who=3, settings={"stall_s": 20.0}),
    Job("late for less than the threshold", "sleep", who=3, seconds=4.0, steps=100, until=""),
    Job("stopped", "stop", settings={"stall_s": 20.0}),
    Job("raises", "raise", who=1, world=3, ends_itself=True),
    Job("killed", "kill", world=3, ends_itself=True),
    Job("the guard's thread dies", "thread dies", who=1, steps=120, until=""),
    Job("stopped for a while", "pause", seconds=12.0, steps=60, until="", settings={"mode": "raise", "stall_s": None}),
    Job("nonsense in the store", "hostile", who=1, world=3),
    Job("rank 0 is killed", "kill", who=0, world=3, ends_itself=True, until="", settings={"mode": "dump"}),
)


SWEPT = (
    Job("leaves early", "exit", world=3, ends_itself=True),
    Job("another order of groups", "order", who=1),
    Job("the store's host's guard dies", "thread dies", who=0, steps=120, until=""),
    Job("the clock jumps", "clock", who=0, steps=120, until=""),
)


@dataclass(frozen=True)
class Ended:
    folder: Path
    codes: list[int]

    def log(self, rank: int) -> str:
        return (self.folder / f"log_rank_{rank}.txt").read_text(errors="replace")

    @property
    def alarms(self) -> list[str]:
        return re.findall(r"^forkpoint guard: 20\S+Z (.*)", self.log(0), re.MULTILINE)


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> Iterator[dict[str, Ended]]:
    jobs_run = (*JOBS, *SWEPT) if is_swept(request) else JOBS
    with tempfile.TemporaryDirectory() as base:
        folders = {job.name: Path(base) / str(number) for number, job in enumerate(jobs_run)}
        for job in jobs_run:
            folders[job.name].mkdir()
            (folders[job.name] / "train.py").write_text(job.script())
        told = [
            {
                "folder": str(folders[job.name]),
                "world": job.world,
                "pg_timeout": 600,
                "imports": ["msgspec", "forkpoint.guard"],
                "ends_itself": job.ends_itself,
                "until": job.until,
                "stays_s": STAYS_S,
            }
            for job in jobs_run
        ]
        jobs = Path(base) / "jobs.json"
        jobs.write_text(json.dumps(told))
        done = run(str(TESTS / "remedies" / "ranks.py"), str(jobs))
        assert done.code == 0, done.err
        codes = json.loads(done.out)
        yield {job.name: Ended(folders[job.name], codes[str(folders[job.name])]) for job in jobs_run}


@for_each(
    ("name", "cause", "suspect"),
    [
        ("another call", "divergent-path", "rank 2"),
        ("another type", "metadata-mismatch", "rank 1"),
        ("late for longer than the threshold", "host-stall", "Rank 3"),
        ("stopped", "host-stall", "The process of rank 2 is stopped, by a signal or a debugger"),
        ("raises", "rank-lost", 'Rank 1 raised ValueError ("a bad batch")'),
        ("killed", "rank-lost", "Rank 2"),
        ("nonsense in the store", "divergent-path", "rank 1"),
    ],
)
def test_what_went_wrong_is_said_with_cause_and_rank(ended, name, cause, suspect) -> None:
    one_alarm(ended, name, cause, suspect)


@pytest.mark.sweep
def test_a_rank_that_leaves_early_and_another_order_of_groups_are_said(ended) -> None:
    one_alarm(ended, "leaves early", "divergent-path", "Rank 2")
    one_alarm(ended, "another order of groups", ("order-inversion", "divergent-path"), "")


def one_alarm(ended, name, cause, suspect) -> None:
    assert len(ended[name].alarms) == 1, ended[name].log(0)
    assert ended[name].alarms[0].startswith(cause)
    assert suspect.lower() in ended[name].alarms[0].lower()


def test_a_process_that_is_stopped_and_let_go_is_said_and_does_not_end_the_job(ended) -> None:
    job = ended["stopped for a while"]
    assert job.codes == [0, 0, 0, 0]
    assert job.alarms == []
    assert "the process of rank 2 is stopped, by a signal or a debugger" in job.log(0)


def test_without_rank_0_every_rank_leaves_what_it_held(ended) -> None:
    job = ended["rank 0 is killed"]
    left = {path.name for folder in (job.folder / "forkpoint-guard").iterdir() for path in folder.iterdir()}
    assert {"trace_rank_1", "trace_rank_2", "stacks_rank_1.txt", "stacks_rank_2.txt"} <= left
    assert all("forkpoint diagnose" in job.log(rank) for rank in (1, 2))


def test_wrong_data_without_a_hang_is_said_while_the_job_goes_on(ended) -> None:
    assert ended["another type"].codes == [0, 0, 0, 0]
    log = ended["another type"].log(0)
    assert log.index("metadata-mismatch") < log.index("FINISHED")


def test_a_call_skipped_among_equal_ones_is_found_where_steps_are_told(ended) -> None:
    job = ended["a call skipped among equal ones"]
    assert "divergent-path" in job.alarms[0]
    assert re.search(r"Rank 3 had issued 1 fewer call than the others in group 0 by the end of step \d+", job.alarms[0])


def test_a_rank_that_is_late_and_comes_is_no_alarm(ended) -> None:
    job = ended["late for less than the threshold"]
    assert job.alarms == []
    assert job.codes == [0, 0, 0, 0]
    assert "forkpoint" not in job.log(0)


def test_the_line_where_a_late_rank_stands_is_said(ended) -> None:
    assert re.search(r"at .*job\.py:\d+", ended["late for longer than the threshold"].log(0))


def test_in_mode_raise_every_rank_ends_with_the_verdict(ended) -> None:
    job = ended["raise mode"]
    assert all(code not in (0, -9) for code in job.codes)
    assert all("divergent-path" in job.log(rank) for rank in range(4))


def test_what_it_alarms_for_is_kept_although_the_job_ends(ended) -> None:
    until = time.monotonic() + PATIENCE_S
    file = ended["raise mode"].folder / STORE
    kept: list[ListedIncident] = []
    while not kept and time.monotonic() < until:
        time.sleep(0.2)
        if file.exists():
            store = open_store(str(file))
            kept = list_incidents(store)
            store.close()

    assert [(one.cause, one.suspects, one.world) for one in kept] == [("divergent-path", (2,), 4)]


def test_services_are_told_although_the_job_ends_and_what_fails_is_one_line(ended) -> None:
    until = time.monotonic() + PATIENCE_S
    job = ended["raise mode"]
    failed = "forkpoint: slack: could not be notified (FORKPOINT_SLACK_URL is not set"
    while failed not in job.log(0) and time.monotonic() < until:
        time.sleep(0.2)

    assert job.log(0).count(failed) == 1
    told = json.loads((job.folder / NOTICE).read_text())
    assert (told["cause"], told["suspects"]) == ("divergent-path", [2])


def test_in_mode_dump_all_ranks_leave_dumps_and_stacks_that_can_be_diagnosed(ended) -> None:
    job = ended["another call"]
    (folder,) = (job.folder / "forkpoint-guard").iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names >= {f"trace_rank_{r}" for r in range(4)} | {f"stacks_rank_{r}.txt" for r in range(4)} | {"ranks.json"}
    verdict = forkpoint.diagnose(forkpoint.read([str(folder)]))
    assert (verdict.cause, verdict.suspects) == ("divergent-path", (2,))
    assert str(folder.name) in job.log(0)


def test_a_full_disk_is_said_and_training_goes_on(ended) -> None:
    assert "evidence: not kept: /dev/null/full" in ended["a call skipped among equal ones"].log(0)


def test_when_the_guard_dies_the_job_ends_well(ended) -> None:
    ends_well_without_alarm(ended, "the guard's thread dies")


@pytest.mark.sweep
@for_each("name", ["the store's host's guard dies", "the clock jumps"])
def test_whatever_else_happens_to_the_guard_the_job_ends_well(ended, name) -> None:
    ends_well_without_alarm(ended, name)


def ends_well_without_alarm(ended, name) -> None:
    assert ended[name].codes == [0, 0, 0, 0]
    assert ended[name].alarms == []
    assert all("FINISHED" in ended[name].log(rank) for rank in range(4))


def test_a_guard_that_died_says_so(ended) -> None:
    log = ended["the guard's thread dies"].log(1)
    assert "forkpoint guard: stopped by its own error" in log
    assert 'STATUS blind="TypeError' in log
