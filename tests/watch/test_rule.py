"""When a look is an alarm: jobs written down op by op, looked at as files and through a clock of one's own."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forkpoint.evidence import read
from forkpoint.live.watch.look import JobWatch, WatchSettings
from forkpoint.live.watch.rule import Sight, WatchState
from forkpoint.live.watch.sources import Dump, Gathered, Spool
from forkpoint.live.watch.sources.paths import Paths
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Cause, Symptom
from forkpoint.pipeline import diagnose
from small_jobs import SmallJob

WATCHDOG = (
    "[rank{rank}]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
    "ran for 600019 milliseconds before timing out.\n"
)


@dataclass
class Recorders:
    """A live source: the dumps of these ranks as they are now, at a time that the test sets."""

    job: SmallJob
    now: float = 1000.0
    ranks: list[int] = field(default_factory=list)
    has_grown: bool = False
    said: tuple[LogEvent, ...] = ()
    stacks: dict[int, str] = field(default_factory=dict)
    name: str = "recorders"

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        paths = [spool.put(f"rank_{rank}", self.job.dump(rank)) for rank in self.ranks or range(self.job.world)]
        shown = [spool.put(f"rank_{r}_stacks.txt", text.encode()) for r, text in self.stacks.items() if stacks]
        said, self.said = self.said, ()
        dumps = tuple(Dump(path, self.now, None) for path in paths)
        return Gathered(dumps, tuple(shown), has_grown=self.has_grown, said=said)


def looking(job: SmallJob, tmp_path: Path) -> tuple[Recorders, JobWatch]:
    source = Recorders(job)
    return source, JobWatch([source], Spool(str(tmp_path)), WatchSettings(stall_s=300))


def look_after(seconds: float, source: Recorders, watch: JobWatch) -> Sight:
    source.now += seconds
    return watch.look()


def waiting_for_2() -> SmallJob:
    """Ranks 0, 1 and 3 are in an all_reduce that rank 2 has not issued."""
    job = SmallJob(4)
    job.op()
    job.op()
    job.op([0, 1, 3], done=False)
    return job


def test_a_rank_that_is_behind_is_no_finding_before_the_stall_time(tmp_path: Path) -> None:
    source, watch = looking(waiting_for_2(), tmp_path)
    sights = [look_after(50, source, watch) for _ in range(6)]

    assert {sight.state for sight in sights} == {WatchState.WAITING}
    assert sights[-1].still_s == 250
    assert sights[-1].groups[0].behind == 1


def test_no_movement_for_the_stall_time_is_found_once_and_over_when_ranks_move(tmp_path: Path) -> None:
    source, watch = looking(waiting_for_2(), tmp_path)
    watch.look()
    sights = [look_after(s, source, watch) for s in (299, 1, 5, 5)]
    source.job.op([2])
    over = look_after(5, source, watch)

    assert [s.state for s in sights] == [WatchState.WAITING, WatchState.WAITING, WatchState.FOUND, WatchState.FOUND]
    assert [s.is_alarm for s in sights] == [False, False, True, False]
    assert sights[2].verdict
    assert (sights[2].verdict.cause, sights[2].verdict.suspects) == (Cause.HOST_STALL, (2,))
    assert (over.state, over.verdict) == (WatchState.RUNNING, None)


def test_movement_of_one_rank_begins_the_time_anew(tmp_path: Path) -> None:
    source, watch = looking(waiting_for_2(), tmp_path)
    watch.look()
    look_after(290, source, watch)
    source.job.op([2], done=False)
    moved = look_after(5, source, watch)

    assert moved.state is WatchState.RUNNING
    assert look_after(20, source, watch).state is WatchState.WAITING


def test_ranks_that_compute_with_nothing_pending_are_never_an_alarm(tmp_path: Path) -> None:
    job = SmallJob(2)
    job.op()
    source, watch = looking(job, tmp_path)

    assert {look_after(1000, source, watch).state for _ in range(4)} == {WatchState.WAITING}


def test_calls_that_do_not_fit_are_found_in_the_second_look_even_while_the_job_goes_on(tmp_path: Path) -> None:
    job = SmallJob(4)
    job.op()
    job.op([0, 1, 3])
    job.op([2], name="all_gather", line=12)
    source, watch = looking(job, tmp_path)
    first = watch.look()
    source.job.op()
    second = look_after(5, source, watch)

    assert (first.state, first.verdict) == (WatchState.WAITING, None)
    assert second.verdict
    assert (second.state, second.verdict.suspects) == (WatchState.FOUND, (2,))


def test_a_dump_that_lies_there_shows_no_stall_however_long_it_is_looked_at(tmp_path: Path) -> None:
    """It was written in a healthy moment, and nobody wrote another one."""
    _, watch = looking(waiting_for_2(), tmp_path)

    assert {watch.look().state for _ in range(5)} == {WatchState.WAITING}


def test_a_rank_that_no_longer_answers_does_not_make_the_others_move(tmp_path: Path) -> None:
    source, watch = looking(waiting_for_2(), tmp_path)
    watch.look()
    source.ranks = [0, 1, 3]
    sights = [look_after(s, source, watch) for s in (150, 150, 5)]

    assert sights[0].ranks_answering == 3
    assert sights[-1].state is WatchState.FOUND
    assert sights[-1].verdict
    assert 0 not in sights[-1].verdict.suspects


def ring() -> SmallJob:
    """Two groups of the same ranks, which rank 0 and rank 1 use in opposite order."""
    job = SmallJob(2, groups={"1": ("a", (0, 1)), "2": ("b", (0, 1))})
    for _ in range(3):
        job.op()
        job.op(group="1")
        job.op(group="2")
    job.op([0], group="1", done=False)
    job.op([1], group="2", done=False)
    return job


STACK = """\
Current thread 0x00007f94097fa6c0 (most recent call first):
  File "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/train/train.py", line 13 in <module>
"""


def test_a_ring_counts_at_once_where_stacks_show_that_its_ranks_wait_and_else_after_the_stall_time(
    tmp_path: Path,
) -> None:
    source, watch = looking(ring(), tmp_path)
    bare = [look_after(5, source, watch) for _ in range(4)]
    source.stacks = {0: STACK, 1: STACK}
    shown = [look_after(5, source, watch) for _ in range(2)]

    assert {sight.state for sight in bare} == {WatchState.WAITING}
    assert shown[-1].state is WatchState.FOUND
    assert shown[-1].verdict
    assert shown[-1].verdict.cause is Cause.ORDER_INVERSION


def test_a_failure_in_a_log_does_not_count_while_ranks_move(tmp_path: Path) -> None:
    """It is of the attempt before, or was dealt with."""
    job = SmallJob(2)
    job.op()
    source, watch = looking(job, tmp_path)
    source.said = (LogEvent(LogKind.WATCHDOG_TIMEOUT, "old.log", 1, 0, "timeout"),)
    watch.look()
    sights: list[Sight] = []
    for _ in range(3):
        source.job.op()
        sights.append(look_after(5, source, watch))

    assert {(sight.state, sight.verdict) for sight in sights} == {(WatchState.RUNNING, None)}


def test_an_exception_of_a_rank_that_still_answers_does_not_count(tmp_path: Path) -> None:
    """It was caught: the others wait for this rank a little longer, and it comes."""
    source, watch = looking(waiting_for_2(), tmp_path)
    source.said = (LogEvent(LogKind.EXCEPTION, "rank_2.log", 1, 2, "ValueError: bad batch"),)
    answering = [look_after(5, source, watch) for _ in range(4)]
    source.ranks = [0, 1, 3]
    gone = [look_after(5, source, watch) for _ in range(2)]

    assert {sight.state for sight in answering} == {WatchState.WAITING}
    assert gone[-1].state is WatchState.FOUND


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(4):
        (folder / f"rank_{rank}.log").write_text(f"[rank{rank}]: step 1\n")
    return folder


def append(logs: Path, rank: int, text: str) -> None:
    with (logs / f"rank_{rank}.log").open("a") as log:
        log.write(text)


def test_a_watchdog_line_in_a_log_that_grows_is_found_whoever_it_was(logs: Path, tmp_path: Path) -> None:
    watch = JobWatch([Paths([str(logs)])], Spool(str(tmp_path / "spool")), WatchSettings())
    first = watch.look()
    append(logs, 0, "[rank0]: step 2\n")
    grown = watch.look()
    for rank in (0, 1, 3):
        append(logs, rank, WATCHDOG.format(rank=rank))
    sights = [watch.look(), watch.look(), watch.look()]

    assert (first.state, grown.state) == (WatchState.WAITING, WatchState.RUNNING)
    assert [sight.is_alarm for sight in sights] == [False, True, False]
    assert sights[1].verdict
    assert (sights[1].state, sights[1].verdict.symptom) == (WatchState.FOUND, Symptom.WATCHDOG_TIMEOUT)


def test_an_exception_counts_only_once_the_logs_are_still(logs: Path, tmp_path: Path) -> None:
    watch = JobWatch([Paths([str(logs)])], Spool(str(tmp_path / "spool")), WatchSettings())
    watch.look()
    trace = 'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n    step()\nValueError: bad batch\n'
    append(logs, 2, "".join(f"[rank2]: {line}\n" for line in trace.splitlines()))
    sights = [watch.look()]
    for number in range(2):
        append(logs, 1, f"[rank1]: step {number}\n")
        sights.append(watch.look())
    still = [watch.look() for _ in range(3)]
    append(logs, 1, "[rank1]: something else\n")
    after = [watch.look() for _ in range(4)]

    assert {sight.state for sight in sights} == {WatchState.RUNNING}
    assert still[-1].state is WatchState.FOUND
    assert sum(sight.is_alarm for sight in (*still, *after)) == 1
    assert after[-1].state is WatchState.FOUND


def test_a_blind_watch_says_why_and_what_was_found_stays_found_when_the_job_is_gone(tmp_path: Path) -> None:
    class Gone:
        name = "gone"

        def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
            return Gathered(notes=("rank 0: no answer",))

    blind = JobWatch([Gone()], Spool(str(tmp_path / "blind")), WatchSettings()).look()
    source, watch = looking(waiting_for_2(), tmp_path / "gone")
    for seconds in (1, 300, 5):
        look_after(seconds, source, watch)
    watch._sources = (Gone(),)
    after = watch.look()

    assert (blind.state, blind.why) == (WatchState.BLIND, "no op can be read: gone: rank 0: no answer")
    assert after.state is WatchState.FOUND


def test_a_full_disk_is_a_note_and_the_watch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, watch = looking(waiting_for_2(), tmp_path)

    def is_full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "put", is_full)
    sight = watch.look()

    assert sight.state is WatchState.BLIND
    assert "No space left on device" in sight.notes[0].text


def test_the_evidence_of_an_alarm_is_kept_as_it_was_and_diagnoses_the_same(tmp_path: Path) -> None:
    source, watch = looking(waiting_for_2(), tmp_path)
    found = [look_after(seconds, source, watch) for seconds in (1, 300, 5)][-1]
    source.job.op([2], name="broadcast")
    look_after(5, source, watch)

    assert found.evidence
    assert diagnose(read([found.evidence])) == found.verdict
    assert sorted(file.name for file in Path(found.evidence).iterdir()) == [
        "rank_0",
        "rank_1",
        "rank_2",
        "rank_3",
        "ranks.json",
    ]
