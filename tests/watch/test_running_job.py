"""Three real gloo ranks with torch's worker server: healthy, held up, going on, and in calls that do not fit."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.live.watch.look import JobWatch, WatchSettings
from forkpoint.live.watch.rule import Sight, WatchState
from forkpoint.live.watch.sources import Spool
from forkpoint.live.watch.sources.ask import SourceAddress
from forkpoint.live.watch.sources.debug_server import DebugServer, DebugWorker
from forkpoint.model.verdict import Cause
from warm import program

pytestmark = pytest.mark.torch
JOB = Path(__file__).with_name("job.py")
PATIENCE_S = 800


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("job")
    with program(str(JOB), str(folder)):
        yield folder


@pytest.fixture(scope="module")
def watch(job: Path, tmp_path_factory: pytest.TempPathFactory) -> JobWatch:
    deadline = time.monotonic() + PATIENCE_S
    ports = [job / f"port_{rank}" for rank in range(3)]
    while not all(port.exists() for port in ports):
        assert time.monotonic() < deadline, "the job did not begin"
        time.sleep(0.1)
    workers = [DebugWorker(rank, SourceAddress("127.0.0.1", int(port.read_text()))) for rank, port in enumerate(ports)]
    spool = Spool(str(tmp_path_factory.mktemp("spool")))
    return JobWatch([DebugServer(workers, dated=False)], spool, WatchSettings(stall_s=20.0, world_size=3))


def look_until(watch: JobWatch, *states: WatchState) -> list[Sight]:
    """All sights up to the first in one of the states."""
    deadline = time.monotonic() + PATIENCE_S
    sights: list[Sight] = []
    while not sights or sights[-1].state not in states:
        assert time.monotonic() < deadline, sights[-1]
        sights.append(watch.look())
        time.sleep(0.3)
    return sights


def test_a_healthy_job_is_running_however_ranks_are_caught(watch: JobWatch) -> None:
    first = watch.look()
    sights = [sight for _ in range(5) for sight in look_until(watch, WatchState.RUNNING)]

    assert (first.state, first.ranks_answering, first.ranks_expected) == (WatchState.WAITING, 3, 3)
    assert {sight.state for sight in sights} <= {WatchState.RUNNING, WatchState.WAITING}
    assert all(sight.verdict is None for sight in sights)
    assert sights[-1].groups[0].group == "default_pg"


def test_a_rank_that_stops_is_named_after_the_stall_time_and_the_job_runs_again_after_it(
    watch: JobWatch, job: Path
) -> None:
    (job / "rank_1_sleeps").touch()
    found = look_until(watch, WatchState.FOUND)[-1]
    again = watch.look()
    (job / "rank_1_sleeps").unlink()
    after = look_until(watch, WatchState.RUNNING)[-1]

    assert found.verdict
    assert found.evidence
    assert (found.verdict.cause, found.verdict.suspects) == (Cause.HOST_STALL, (1,))
    assert found.still_s >= 20.0
    assert (found.is_alarm, again.is_alarm, again.state) == (True, False, WatchState.FOUND)
    assert after.verdict is None
    assert {evidence.file.rpartition("/")[0] for evidence in found.verdict.evidence} == {found.evidence}


def test_calls_that_do_not_fit_are_found_with_the_odd_rank(watch: JobWatch, job: Path) -> None:
    (job / "rank_2_differs").touch()
    found = look_until(watch, WatchState.FOUND)[-1]

    assert found.verdict
    assert (found.verdict.cause, found.verdict.suspects) == (Cause.DIVERGENT_PATH, (2,))
    assert found.is_alarm
