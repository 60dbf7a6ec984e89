"""Mixed jobs, stale files and duplicates are noticed and said, and never compared."""

from pathlib import Path

import forkpoint
from forkpoint.evidence import Choice
from forkpoint.model.verdict import Cause
from looping import for_each
from small_jobs import STEP_NS, SmallJob

HOUR = 3_600_000_000_000


def _healthy(world: int = 4, script: str = "/train/train.py", start: int = 0) -> SmallJob:
    job = SmallJob(world, now=start)
    for _ in range(20):
        job.op()
    for entries in job.entries.values():
        for entry in entries:
            entry["frames"] = [*entry["frames"][:-1], {"name": "<module>", "filename": script, "line": 9}]
    return job


def _write(folder: Path, job: SmallJob, ranks: range | list[int], name: str = "nccl_trace_rank_{}") -> None:
    folder.mkdir(exist_ok=True)
    for rank in ranks:
        (folder / name.format(rank)).write_bytes(job.dump(rank))


def test_a_dump_of_a_job_of_another_size_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(), range(4))
    _write(tmp_path / "old", _healthy(world=8), [6])

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.cause is Cause.HEALTHY
    assert ["from another job (8 ranks" in one.why for one in verdict.coverage.set_aside] == [True]


def test_a_stale_file_of_an_earlier_run_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(start=HOUR), [0, 1, 2])
    stale = _healthy()
    stale.op(size=77)
    _write(tmp_path, stale, [3])

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.suspects == ()
    assert ["from another run" in one.why for one in verdict.coverage.set_aside] == [True]


def test_a_dump_of_another_script_that_agrees_in_no_call_is_set_aside(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(), [0, 1, 2])
    other = _healthy(script="/other/eval.py")
    for entry in other.entries[3]:
        entry["input_sizes"] = [[99]]
    _write(tmp_path, other, [3])

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.suspects == ()
    assert ["/other/eval.py" in one.why for one in verdict.coverage.set_aside] == [True]


def test_a_job_of_several_scripts_that_agree_is_one_job(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(), [0, 1, 2])
    _write(tmp_path, _healthy(script="/train/actor.py"), [3])

    assert forkpoint.diagnose(forkpoint.read([str(tmp_path)])).cause is Cause.HEALTHY


def test_an_older_copy_of_a_rank_gives_way_to_the_newer(tmp_path: Path) -> None:
    job = _healthy()
    _write(tmp_path, job, range(4))
    older = SmallJob(4)
    older.entries = {rank: entries[:7] for rank, entries in job.entries.items()}
    _write(tmp_path / "copy", older, [2])

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.cause is Cause.HEALTHY
    assert ["a second, older or equal dump of rank 2" in one.why for one in verdict.coverage.set_aside] == [True]


def test_two_dumps_that_claim_one_rank_and_disagree_are_both_left_out(tmp_path: Path) -> None:
    job = _healthy()
    _write(tmp_path, job, range(4))
    other = _healthy()
    other.entries[2][4]["input_sizes"] = [[99]]
    _write(tmp_path / "copy", other, [2])

    capture = forkpoint.read([str(tmp_path)])

    assert [t.rank for t in capture.traces] == [0, 1, 3]
    assert sum("all claim rank 2 and hold different calls" in one.why for one in capture.set_aside) == 2


@for_each("name", ["rank_{}", "fr-rank{}.pkl", "trace_rank_gpu-node02_{}", "dump_{}.bin", "rank{}/fr"])
def test_the_rank_comes_from_any_file_name(tmp_path: Path, name: str) -> None:
    for rank in range(4):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_healthy().dump(rank))

    assert [t.rank for t in forkpoint.read([str(tmp_path)]).traces] == [0, 1, 2, 3]


def test_content_that_names_its_rank_goes_before_the_file_name(tmp_path: Path) -> None:
    job = SmallJob(4, groups={"1": ("tp", (2, 3)), "2": ("dp", (0, 2))})
    job.op(ranks=[2], group="1")
    job.op(ranks=[2], group="2")
    (tmp_path / "nccl_trace_rank_0").write_bytes(job.dump(2))

    capture = forkpoint.read([str(tmp_path)])

    assert [t.rank for t in capture.traces] == [2]
    assert "named rank 0, but its content is from rank 2" in capture.problems[0].text


def test_a_dump_without_a_rank_is_said_not_guessed(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(), range(3))
    (tmp_path / "trace").write_bytes(_healthy().dump(3))

    capture = forkpoint.read([str(tmp_path)])

    assert [t.rank for t in capture.traces] == [0, 1, 2]
    assert "does not say which rank wrote it" in capture.problems[0].text


def test_a_snapshot_of_a_running_job_accuses_nobody(tmp_path: Path) -> None:
    job = SmallJob(4, lib="gloo")
    for _ in range(9):
        job.op()
    job.op(ranks=[0, 1, 2], done=False)
    job.now += STEP_NS
    _write(tmp_path, job, range(4), "rank_{}")

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.cause is Cause.INCONCLUSIVE
    assert verdict.suspects == ()


def test_a_dump_of_another_library_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(), range(4))
    gloo = SmallJob(4, lib="gloo")
    gloo.op()
    _write(tmp_path / "gloo", gloo, [1])

    capture = forkpoint.read([str(tmp_path)])

    assert [t.rank for t in capture.traces] == [0, 1, 2, 3]
    assert "a dump from gloo: the others are from nccl" in capture.set_aside[0].why


def _shifted(job: SmallJob, ns: int) -> SmallJob:
    for entries in job.entries.values():
        for entry in entries:
            entry["time_created_ns"] += ns
            if entry["time_discovered_completed_ns"]:
                entry["time_discovered_completed_ns"] += ns
    return job


def test_sequence_numbers_that_begin_again_are_another_run(tmp_path: Path) -> None:
    """Within the timeout: clocks alone would not part them."""
    _write(tmp_path / "first", _healthy(), range(4))
    _write(tmp_path / "second", _shifted(_healthy(), 15_000_000_000), [0, 1])

    capture = forkpoint.read([str(tmp_path)])

    assert [t.file.split("/")[-2] for t in capture.traces] == ["first"] * 4
    assert all("sequence numbers begin again" in one.why for one in capture.set_aside)


def test_numbers_that_go_on_are_the_same_run(tmp_path: Path) -> None:
    job = _healthy()
    later = SmallJob(4)
    later.entries = {rank: entries[-1:] for rank, entries in job.entries.items()}
    _write(tmp_path, job, [0, 1, 2])
    _write(tmp_path, later, [3])

    assert forkpoint.read([str(tmp_path)]).set_aside == ()


SECONDS = 1_000_000_000


def _folders(folder: Path) -> dict[int, str]:
    return {t.rank: t.file.split("/")[-2] for t in forkpoint.read([str(folder)]).traces}


def _from(job: SmallJob, first: int, last: int) -> SmallJob:
    """The same job, as a recorder would hold it that kept only these calls."""
    job.entries = {rank: entries[first - 1 : last] for rank, entries in job.entries.items()}
    return job


def test_a_rank_that_repeats_its_numbers_later_tells_two_runs_apart_and_whose_the_other_dumps_are(
    tmp_path: Path,
) -> None:
    """Of the first run ranks 0 and 3 left dumps, of the second ranks 0, 1 and 2. No call is done, so that none can have been done
    too early.
    """
    first, second = SmallJob(4), SmallJob(4)
    for job in (first, second):
        for _ in range(20):
            job.op(done=False)
    _write(tmp_path / "first", first, [0, 3])
    _write(tmp_path / "second", _shifted(second, 5 * SECONDS), [0, 1, 2])

    assert _folders(tmp_path) == {0: "first", 3: "first"}


@for_each(
    "again, later",
    [((1, 20), 100_000_000), ((21, 40), 5 * SECONDS)],
    ids=["taken while the other was written", "its numbers go on"],
)
def test_a_second_dump_of_a_rank_that_overlaps_or_goes_on_is_of_the_same_run(
    tmp_path: Path, again: tuple[int, int], later: int
) -> None:
    long, short = SmallJob(4), SmallJob(4)
    for _ in range(40):
        long.op(done=False)
    for _ in range(20):
        short.op(done=False)
    _write(tmp_path / "first", short, [0, 3])
    _write(tmp_path / "second", _shifted(_from(long, *again), later), [0, 1, 2])

    assert set(_folders(tmp_path)) == {0, 1, 2, 3}


def test_an_older_copy_of_a_rank_does_not_part_it_from_peers_whose_recorders_began_later(tmp_path: Path) -> None:
    long, copy, wrapped = SmallJob(4), SmallJob(4), SmallJob(4)
    for job, calls in ((long, 30), (copy, 20), (wrapped, 30)):
        for _ in range(calls):
            job.op(done=False)
    _write(tmp_path / "copy", copy, [0])
    _write(tmp_path / "long", long, [0, 1])
    _write(tmp_path / "long", _from(wrapped, 25, 30), [2, 3])

    assert _folders(tmp_path) == dict.fromkeys(range(4), "long")


@for_each(
    "calls, first, runs",
    [(40, 1, {"first"}), (40, 30, {"first", "second"}), (16, 1, {"first", "second"})],
    ids=["begins again", "may still have been outstanding", "all may still have been outstanding"],
)
def test_of_gloo_which_does_not_record_when_calls_were_done_those_far_behind_the_last_were(
    tmp_path: Path, calls: int, first: int, runs: set[str]
) -> None:
    """Dumps of two ranks each, 15 seconds apart: within the timeout."""
    old, new = SmallJob(4, lib="gloo"), SmallJob(4, lib="gloo")
    for job in (old, new):
        for _ in range(calls):
            job.op(time_discovered_completed_ns=None)
    _write(tmp_path / "first", old, [0, 1], "rank_{}")
    _write(tmp_path / "second", _shifted(_from(new, first, calls), 15 * SECONDS), [2, 3], "rank_{}")

    assert set(_folders(tmp_path).values()) == runs


def test_the_first_of_two_runs_is_judged_unless_another_is_asked_for(tmp_path: Path) -> None:
    _write(tmp_path / "a", _healthy(), range(4))
    _write(tmp_path / "b", _shifted(_healthy(), HOUR), range(4))

    first = forkpoint.read([str(tmp_path)])
    second = forkpoint.read([str(tmp_path)], choice=Choice(attempt=1))

    assert {t.file.split("/")[-2] for t in first.traces} == {"a"}
    assert {t.file.split("/")[-2] for t in second.traces} == {"b"}


def test_a_file_that_was_set_aside_can_be_used_anyway(tmp_path: Path) -> None:
    _write(tmp_path, _healthy(start=HOUR), [0, 1, 2])
    _write(tmp_path, _healthy(), [3])
    wanted = str(tmp_path / "nccl_trace_rank_3")

    used = forkpoint.read([str(tmp_path), wanted], choice=Choice(frozenset({wanted})))
    everything = forkpoint.read([str(tmp_path)], choice=Choice(everything=True))

    assert [t.rank for t in used.traces] == [0, 1, 2, 3]
    assert [t.rank for t in everything.traces] == [0, 1, 2, 3]
