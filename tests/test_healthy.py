"""Jobs that ended well although their dumps hold calls in flight. Each with a near miss."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import forkpoint
from forkpoint.evidence.logs import read_log
from forkpoint.model.log import Ending
from forkpoint.model.verdict import Cause, Symptom, Verdict
from looping import for_each
from small_jobs import T0, SmallJob
from texts import CLOSED, raised, with_logs

SECOND = 10**9


def _caught(done: Iterable[int], *, lib: str = "nccl", size: int = 4, **waiting: object) -> Verdict:
    """Dumps taken while rank 3 was a call behind. `done`: ranks that say at their end that they were done; `size`: of rank 0's
    call; `waiting`: what else is recorded of the call of ranks 1 and 2.
    """
    job = SmallJob(4, lib=lib)
    for _ in range(3):
        job.op()
    job.op(ranks=[0], size=size, done=False)
    job.op(ranks=[1, 2], **{"done": False, **waiting})
    logs = tuple((f"log_rank_{rank}.txt", rank) for rank in range(4))
    ends = {file: Ending(("bye",), done=9 if rank in set(done) else None) for file, rank in logs}
    return forkpoint.diagnose(replace(job.capture(logs=logs), log_ends=ends))


@for_each("lib", ["nccl", "gloo"])
def test_a_job_whose_ranks_all_say_that_they_were_done_is_well_whatever_its_dumps_caught_in_flight(lib: str) -> None:
    verdict = _caught(range(4), lib=lib)

    assert (verdict.cause, verdict.suspects, verdict.symptom) == (Cause.HEALTHY, (), Symptom.NONE)


def test_a_job_of_which_one_rank_does_not_say_so_is_not_called_well() -> None:
    assert _caught(range(3)).cause is not Cause.HEALTHY


def test_a_call_that_outlived_its_timeout_is_not_called_well() -> None:
    """Its state is `completed` only because the dump asked, after the communicator was aborted."""
    late = {"state": "completed", "retired": False, "time_discovered_completed_ns": T0 + 60 * SECOND}

    assert Cause.HEALTHY not in [finding.cause for finding in _caught(range(4), **late).findings]


def test_calls_that_do_not_fit_are_not_called_well() -> None:
    assert _caught(range(4), size=8).cause is not Cause.HEALTHY


@for_each(
    ("line", "done", "by"),
    [
        ("2026-11-16 02:39:10,600 rank4 INFO finished", True, {4}),
        ("2026-11-16 02:39:10,600 INFO done", True, set()),
        ("rank 4 finished", True, {4}),
        ("2026-11-16 02:39:10,600 rank4 INFO step finished", False, set()),
        ("2026-11-16 02:39:10,600 rank4 INFO epoch 3 finished", False, set()),
        ("2026-11-16 02:39:10,600 rank4 INFO finished step 3", False, set()),
        ("2026-11-16 02:39:10,600 rank4 INFORMED finished", False, set()),
    ],
)
def test_a_program_that_is_finished_is_told_from_a_step_that_is(line: str, done: bool, by: set[int]) -> None:
    ending = read_log(f"step 1\n{line}\n".encode(), "log", None).ending

    assert (ending.done is not None, set(ending.done_by)) == (done, by)


# ---------------------------------------------------------------------------------------------------------------------
# A job that was told to stop.

TOLD = "received SIGTERM, saving and leaving"


def _told_to_stop(
    told: Iterable[int], before: dict[int, str] | None = None, after: dict[int, str] | None = None
) -> Verdict:
    """Logs alone. `before`, `after`: what those of these ranks hold around that line."""
    said = {
        rank: [
            "step 3",
            *(before or {}).get(rank, "").splitlines(),
            *([TOLD] if rank in set(told) else []),
            *(after or {}).get(rank, "").splitlines(),
        ]
        for rank in range(4)
    }
    return forkpoint.diagnose(with_logs(SmallJob(4).capture(()), said))


def test_a_job_whose_ranks_all_say_that_they_were_told_to_stop_is_well() -> None:
    assert _told_to_stop(range(4)).cause is Cause.HEALTHY
    assert _told_to_stop(range(4), after={1: raised(1, CLOSED)}).cause is Cause.HEALTHY


def test_it_is_not_where_one_did_not_get_to_say_it_or_a_failure_came_before() -> None:
    assert _told_to_stop(range(3)).cause is not Cause.HEALTHY
    assert _told_to_stop(range(4), before={1: raised(1, CLOSED)}).cause is not Cause.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# Dumps that were taken one after another while the job ran.


def taken(folder: Path, held: dict[int, int], calls: int = 12) -> Verdict:
    """By rank: how many of its calls, which all are done, its dump holds. Of gloo nothing shows by itself that none failed."""
    job = SmallJob(4, lib="gloo")
    for _ in range(calls):
        job.op()
    for rank, count in held.items():
        job.entries[rank] = job.entries[rank][:count]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_a_job_that_made_more_calls_after_each_dump_but_the_last_is_well(tmp_path: Path) -> None:
    verdict = taken(tmp_path, {0: 6, 1: 8, 2: 10, 3: 12})

    assert verdict.cause is Cause.HEALTHY
    assert verdict.summary.startswith("3 of 4 ranks made more calls after their dumps were taken, as later dumps show")


def test_a_job_of_which_only_the_first_dumps_were_taken_earlier_may_have_stopped_since(tmp_path: Path) -> None:
    assert "after their dumps were taken" not in taken(tmp_path, {0: 6, 1: 12, 2: 12, 3: 12}).summary


def test_of_a_large_job_three_quarters_of_the_dumps_are_enough_beside_a_log_without_a_failure(tmp_path: Path) -> None:
    """Whose size nobody states, and of which some left no dump."""
    said = {f"log_rank_{rank}.txt": "step 7\nstep 8\n" for rank in (0, 5)}
    for name, text in said.items():
        (tmp_path / name).write_text(text)

    assert _large(tmp_path, {rank: 4 + rank for rank in range(12) if rank not in (3, 4)}).cause is Cause.HEALTHY


@for_each("counts", [{r: 6 if r < 5 else 12 for r in range(10)}, dict.fromkeys(range(10), 12)])
def test_fewer_that_went_on_may_have_been_dumped_before_the_job_stopped(tmp_path: Path, counts: dict[int, int]) -> None:
    (tmp_path / "log_rank_0.txt").write_text("step 7\n")

    assert _large(tmp_path, counts).cause is not Cause.HEALTHY


def _large(folder: Path, held: dict[int, int]) -> Verdict:
    """The call after those that a dump holds is pending in it."""
    job = SmallJob(12)
    job.groups["0"] = ("ranks", tuple(range(12)))
    for _ in range(16):
        job.op()
    for rank, count in held.items():
        entries = job.entries[rank][:count]
        job.entries[rank] = [
            *entries[:-1],
            {**entries[-1], "state": "scheduled", "retired": False, "time_discovered_completed_ns": None},
        ]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_what_two_dumps_of_a_rank_show_of_its_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    taken(tmp_path / "first", {0: 2, 1: 3, 2: 4, 3: 5})
    taken(tmp_path / "second", {0: 6, 1: 8, 2: 10, 3: 12})

    capture = forkpoint.read([str(tmp_path)])

    assert {one.rank: one.behind for one in capture.set_aside} == {0: 4, 1: 5, 2: 6, 3: 7}
    assert "each rank 4 or more between its two dumps" in forkpoint.diagnose(capture).summary


# ---------------------------------------------------------------------------------------------------------------------
# A launcher that was told to stop.

STOPPED = (
    "W1119 23:33:{second:02}.014000 5761 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 5761 got signal: 15\n"
)


def _stopped(folder: Path, second: int, *, failed: str = "", times: bool = True) -> Verdict:
    """Two ranks print every second until 23:33:20; then the launcher is told to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "[23:33:{:02}]" if times else "[run {}]"
    lines = "".join(f"{stamp.format(at)} [rank {at % 2}] step {at} loss 0.1\n" for at in range(5, 21))
    (folder / "console.log").write_text(lines + failed + STOPPED.format(second=second))
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_a_job_that_printed_until_its_launcher_was_told_to_stop_was_well(tmp_path: Path) -> None:
    verdict = _stopped(tmp_path, 21)

    assert (verdict.cause, verdict.suspects) == (Cause.HEALTHY, ())


@for_each(
    ("what", "given"),
    [
        ("it had been silent for long", {"second": 55}),
        ("it prints no times", {"second": 21, "times": False}),
        ("a rank had failed", {"second": 21, "failed": raised(1, CLOSED)}),
    ],
)
def test_a_job_that_may_have_hung_before_it_was_stopped_is_not_called_well(
    tmp_path: Path, what: str, given: dict[str, object]
) -> None:
    verdict = _stopped(tmp_path / what, **given)  # type: ignore[arg-type]

    assert verdict.cause is Cause.INCONCLUSIVE


def test_a_stop_before_any_failure_is_told_as_what_it_may_mean(tmp_path: Path) -> None:
    verdict = _stopped(tmp_path, 55)

    assert verdict.hypotheses[0].cause is Cause.HEALTHY
    assert "stood still until somebody stopped it" in verdict.hypotheses[0].says
