"""Sentences about evidence, each tried on evidence where it would be false: it must not be printed there."""

import shutil
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import forkpoint
from cases import load_cases, verdict_of
from forkpoint.judge.facts.cite import cite_stack, describe_stack
from forkpoint.judge.hypotheses.asking import who_is_meant
from forkpoint.judge.telling.phrases import raised
from forkpoint.model.capture import UNNAMED_THREAD, LiveStack
from forkpoint.model.headline import definite, plain_call
from forkpoint.model.incident import Role
from forkpoint.model.log import Ending, LogEvent, LogKind, Work
from forkpoint.model.op import Frame
from forkpoint.model.verdict import Cause, Hypothesis, Verdict
from forkpoint.model.world import name_ranks, render_ranks
from forkpoint.report.json_report import render_json
from forkpoint.report.text import render_text
from ingest.encode import encode
from looping import for_each
from small_jobs import MODULE, STEP_NS, TORCH, SmallJob, as_py_spy

SECOND = 10**9


def said(verdict: Verdict) -> str:
    """All that a report can print."""
    return render_json(verdict)


def written(folder: Path, job: SmallJob, ranks: range | tuple[int, ...], **buffer: int) -> Verdict:
    for rank in ranks:
        (folder / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank, **buffer))
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def hung(world: int = 4, waiting: tuple[int, ...] = (0, 1, 2)) -> SmallJob:
    job = SmallJob(world)
    for _ in range(9):
        job.op()
    job.op(waiting, done=False)
    return job


def status(enqueued: int, completed: int) -> dict[str, dict[str, int]]:
    counters = {
        "last_enqueued_collective": enqueued,
        "last_started_collective": -1,
        "last_completed_collective": completed,
    }
    return {"0": counters}


def without_entries(job: SmallJob, counters: dict[str, dict[str, int]]) -> bytes:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(job.world)))}}
    top = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": counters}
    return encode({**top, "entries": []})


def test_a_rank_whose_counters_count_did_not_have_its_recorder_off(tmp_path: Path) -> None:
    job = hung()
    (tmp_path / "nccl_trace_rank_3").write_bytes(without_entries(job, status(9, 9)))

    verdict = written(tmp_path, job, range(3))

    assert "recorder was off" not in said(verdict)
    assert "last enqueued seq 9, according to its counters" in said(verdict)


def test_a_rank_that_may_have_called_nothing_yet_is_not_said_to_have_its_recorder_off(tmp_path: Path) -> None:
    job = hung()
    (tmp_path / "nccl_trace_rank_3").write_bytes(without_entries(job, {}))

    notes = written(tmp_path, job, range(3)).coverage.notes

    assert any("nothing had been recorded yet, or the recorder was off" in note for note in notes)


def test_a_recorder_whose_dump_was_written_is_not_to_be_switched_on() -> None:
    work = Work("ALLREDUCE", 10, 4, 4, 20_000, 20_010)
    events = (
        LogEvent(LogKind.WATCHDOG_TIMEOUT, "rank_0.log", 4, 0, "Watchdog caught ...", seq=10, work=work),
        LogEvent(LogKind.RECORDER_OFF, "rank_0.log", 5, 0, "potentially because FlightRecorder is disabled"),
        LogEvent(
            LogKind.DUMPED, "rank_0.log", 6, 0, "Finished writing", details=(("path", "/dumps/nccl_trace_rank_0"),)
        ),
    )
    capture = SmallJob(2).capture((), events=events, logs=(("rank_0.log", 0), ("rank_1.log", 1)))

    wanted = forkpoint.diagnose(capture).next

    assert not any("export TORCH_FR_BUFFER_SIZE" in step for step in wanted)
    assert wanted[0].startswith("fetch /dumps/nccl_trace_rank_0")


def test_a_dump_that_was_set_aside_is_not_called_missing(tmp_path: Path) -> None:
    job = hung()
    for entry in job.entries[3]:  # a day before
        entry["time_created_ns"] -= 86_400 * SECOND
        entry["time_discovered_completed_ns"] -= 86_400 * SECOND

    verdict = written(tmp_path, job, range(4))

    assert [one.rank for one in verdict.coverage.set_aside] == [3]
    assert "no dump of rank 3" not in said(verdict)
    assert "the dumps of rank 3" not in said(verdict)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"later": 300_000_000}, id="dumped a third of a second later"),
        pytest.param({"active": True}, id="active entries only"),
        pytest.param({"buffer": 2}, id="a ring that wrapped sooner"),
        pytest.param({"later": 10 * SECOND}, id="half a timeout later"),
    ],
)
def test_a_dump_whose_entries_lie_beside_those_of_others_is_used(tmp_path: Path, change: dict[str, int]) -> None:
    job = hung(waiting=(0, 1, 2))
    for entry in job.entries[2]:
        entry["time_created_ns"] += change.get("later", 0)
    if change.get("active"):
        job.entries[2] = [entry for entry in job.entries[2] if not entry["retired"]]
    if "buffer" in change:
        job.entries[2] = job.entries[2][-change["buffer"] :]

    verdict = written(tmp_path, job, range(4))

    assert verdict.coverage.set_aside == ()
    assert verdict.coverage.dumps == 4


def test_an_op_that_is_done_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Rank 3 brings another size to seq 4, which completes; the ops after it are what dumps keep whole."""
    job = SmallJob(4)
    for seq in range(1, 12):
        for rank in range(4):
            job.op([rank], size=9 if (rank, seq) == (3, 4) else 4)
            job.now -= STEP_NS
        job.now += STEP_NS

    verdict = written(tmp_path, job, range(4))

    assert verdict.divergence is not None
    assert verdict.divergence.first_visible_seq == 4
    assert "has no op here" not in said(verdict)
    assert any("all_reduce seq 4: completed" in e.says for e in verdict.evidence)


def test_the_arrows_of_a_ring_point_from_who_waits_to_whom_it_waits_for(tmp_path: Path) -> None:
    """0 waits in {0, 1} for 1, which waits in {1, 2} for 2, which waits in {2, 0} for 0."""
    groups = {"1": ("a", (0, 1)), "2": ("b", (1, 2)), "3": ("c", (0, 2))}
    job = SmallJob(3, groups=groups)
    for _ in range(3):
        for group in groups:
            job.op(group=group)
    for rank, group in ((0, "1"), (1, "2"), (2, "3")):
        job.op([rank], group=group, done=False)

    verdict = written(tmp_path, job, range(3))

    assert verdict.divergence is not None
    assert verdict.divergence.cycle == (0, 1, 2)


def test_where_a_rank_was_is_not_the_line_of_its_last_finished_call(tmp_path: Path) -> None:
    job = hung(waiting=(0, 1, 2))

    verdict = written(tmp_path, job, range(4))

    assert verdict.suspects == (3,)
    assert not any(
        site.cohort is not None and 3 in verdict.divergence.cohorts[site.cohort].ranks for site in verdict.sites
    )  # type: ignore[union-attr]


def test_a_dump_that_leaves_out_what_is_done_was_not_taken_before_its_peers(tmp_path: Path) -> None:
    job = SmallJob(4)
    for _ in range(9):
        job.op()
    job.op((0, 1, 2), done=False)
    job.send(3, 2)
    job.entries[3] = [{**job.entries[3][-1], "state": "scheduled", "retired": False}]
    job.entries[3][0]["record_id"] = 40

    assert "taken before its peers" not in said(written(tmp_path, job, range(4)))


def test_missing_stacks_alone_are_no_held_gil(tmp_path: Path) -> None:
    job = hung()
    for entry in job.entries[3]:
        del entry["frames"]

    assert "GIL" not in said(written(tmp_path, job, range(4)))


def test_a_rank_that_had_issued_calls_by_its_counters_did_not_issue_nothing(tmp_path: Path) -> None:
    job = hung()
    (tmp_path / "nccl_trace_rank_3").write_bytes(without_entries(job, status(9, 9)))

    assert "issued nothing in this group" not in said(written(tmp_path, job, range(3)))


SOURCE = """\
import torch.distributed as dist


def main(rank, model, held_out):
    loss = train(model)
    if loss > held_out[rank]:
        dist.all_reduce(loss)
    else:
        dist.broadcast(loss, 0)


main()
"""


@pytest.mark.parametrize(
    ("odd", "way"), [(7, "true on rank 3, which took this branch"), (9, "false on rank 3, which took the `else`")]
)
def test_a_side_that_took_the_else_did_not_go_in(tmp_path: Path, odd: int, way: str) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    job = SmallJob(4)
    calls = {7: "all_reduce", 9: "broadcast"}
    for rank in range(4):
        line = odd if rank == 3 else 16 - odd
        job.op([rank], name=calls[line], line=line, done=False)
        job.entries[rank][-1]["frames"] = [
            {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/distributed_c10d.py", "line": 1},
            {"name": "main", "filename": str(tmp_path / "train.py"), "line": line},
            {"name": "<module>", "filename": str(tmp_path / "train.py"), "line": 12},
        ]
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for rank in range(4):
        (dumps / f"rank_{rank}").write_bytes(job.dump(rank))

    verdict = forkpoint.diagnose(forkpoint.read([str(dumps)]), source=[str(tmp_path / "train.py")])
    shutil.rmtree(dumps)

    assert verdict.suspects == (3,)
    assert f"was {way}; " in (verdict.sites[0].why or "")


def with_logs(job: SmallJob, events: tuple[LogEvent, ...] = (), done: tuple[int, ...] = ()) -> Verdict:
    """Dumps of all, and a log of each; `done`: those whose log ends with the word that the rank was done."""
    logs = tuple((f"rank_{rank}.log", rank) for rank in range(job.world))
    ends = {file: Ending(("bye",), done=30 if rank in done else None) for file, rank in logs}
    return forkpoint.diagnose(replace(job.capture(events=events, logs=logs), log_ends=ends))


def test_dumps_were_not_taken_while_the_job_ran_where_a_rank_does_not_say_that_it_was_done() -> None:
    told = "the dumps were taken while the job ran"

    assert told in said(with_logs(hung(), done=(0, 1, 2, 3)))
    assert told not in said(with_logs(hung(), done=(0, 1, 2)))


def test_a_rank_whose_dump_holds_the_call_is_not_said_not_to_have_come_to_it() -> None:
    leaves = LogEvent(LogKind.NOTICE, "rank_3.log", 3, 3, "no improvement for 3 epochs")
    asked = LogEvent(LogKind.DUMP_SIGNAL, "rank_3.log", 9, 3, "Received a dump signal")
    work = Work("ALLREDUCE", 10, 4, 4, 20_000, 20_010)
    events = (leaves, asked, LogEvent(LogKind.WATCHDOG_TIMEOUT, "rank_0.log", 8, 0, "Watchdog", seq=10, work=work))

    assert "it did not reach" not in said(with_logs(hung(waiting=(0, 1, 2, 3)), events))


def test_calls_of_one_thread_are_not_said_to_be_of_two() -> None:
    """Rank 3 is in a call of the main thread; those of the others come from C++, which has no frames."""
    job = hung(waiting=())
    job.op((0, 1, 2), line=None, size=64, done=False)
    job.op((3,), "all_gather", line=20, done=False)

    assert "two threads" not in said(with_logs(job)).lower()


def test_one_line_that_all_ranks_are_in_is_not_called_different_paths() -> None:
    """They came to it by different ones: the helper that calls was called from two places."""
    job = hung(waiting=())
    for rank in range(4):
        outer = {"name": "step", "filename": "/train/train.py", "line": 20 if rank < 2 else 30}
        frames = [TORCH, {"name": "sync", "filename": "/train/helper.py", "line": 5}, outer, MODULE]
        job.op([rank], size=4 if rank < 2 else 8, frames=frames, done=False)

    headline = forkpoint.diagnose(job.capture()).headline

    assert headline.startswith("Ranks came to all_reduce at helper.py:5 by different paths")


def test_a_stack_whose_rank_a_log_tells_does_not_count_by_the_number_in_its_name(tmp_path: Path) -> None:
    for number in range(3):
        stack = f'Process {7001 + number}: python train.py\nPython v3.11.7\n\nThread 1 (idle): "MainThread"\n    main (train.py:40)\n'
        (tmp_path / f"job-worker-{number}.txt").write_text(stack)
    (tmp_path / "console.log").write_text("".join(f"rank {2 - n} (pid {7001 + n}) starts\n" for n in range(3)))

    capture = forkpoint.read([str(tmp_path)])

    assert [stack.rank for stack in capture.stacks] == [2, 1, 0]
    assert not any("by the number in its name" in problem.text for problem in capture.problems)


def test_a_rank_is_not_said_never_to_have_joined_for_a_key_of_a_smaller_group() -> None:
    keys = (("keys", "/default_pg/0//2//cpu//0/2"),)
    events = tuple(
        LogEvent(LogKind.STORE, f"rank_{r}.log", 9, r, "wait timeout", exception="DistStoreError", details=keys)
        for r in (0, 1)
    )
    logs = tuple((f"rank_{rank}.log", rank) for rank in range(4))

    assert "rank 2 did not join the job" not in said(
        forkpoint.diagnose(SmallJob(4).capture((), events=events, logs=logs))
    )


@for_each("number, told", [("0005", True), ("0021", False)])
def test_messages_are_said_to_be_paired_wrongly_only_where_later_ones_came(number: str, told: bool) -> None:
    verdict = verdict_of(number)

    assert ("paired with the wrong ones" in verdict.headline) is told
    assert ("pair with the wrong ones" in verdict.summary) is told


def test_of_two_ends_that_count_differently_neither_is_said_to_have_issued_one_too_many() -> None:
    told = verdict_of("0100")

    assert told.suspects == ()
    assert not any("extra" in text for text in (told.summary, told.headline))


def test_a_rank_is_not_said_to_have_computed_wrong_values_where_the_data_of_all_is_the_reading() -> None:
    assert "computed wrong values" not in said(verdict_of("0138"))


def test_several_ranks_were_and_one_was() -> None:
    told = render_text(verdict_of("0021"), width=100, verbose=True)

    assert "ranks 0-3 were asked for a dump" in str(told)
    assert "ranks 0-3 was" not in str(told)


def test_a_refusal_without_a_rank_names_no_ranks() -> None:
    refused = LogEvent(
        LogKind.SIZES_DIFFER, "console.log", 7, None, "what():  op.preamble.length <= op.nbytes. 40 vs 20"
    )

    verdict = forkpoint.diagnose(hung(waiting=()).capture((0, 1, 2), events=(refused,)))

    assert verdict.summary.startswith("A rank got data of another size than it expected")
    assert not any(name_ranks(range(4)) in h.says for h in verdict.hypotheses if h.cause is Cause.METADATA_MISMATCH)


def test_a_call_without_a_name_is_not_called_the_a() -> None:
    assert plain_call("a call") == "a call"
    assert definite(plain_call("a call")) == "the call"
    assert definite("all_reduce at train.py:40") == "the all_reduce at train.py:40"


def test_one_of_many_is_not_said_to_be_one_of_the_first_three() -> None:
    reading = Hypothesis(Cause.HOST_STALL, (), "", "", sides=((0,), (1,), (2,), (5,)))
    told = str(render_text(replace(verdict_of("0084"), hypotheses=(reading,)), width=120))

    assert "host-stall of one of ranks 0-2,5" in told
    assert who_is_meant((), reading.sides) == "one of ranks 0-2,5"


@for_each("number, told", [("0018", "rank 1 is here"), ("0007", "rank 1 diverged here"), ("0032", None)])
def test_a_rank_that_is_stuck_or_gone_is_not_said_to_have_diverged(number: str, told: str | None) -> None:
    case = next(case for case in load_cases() if case.number == number)
    verdict = forkpoint.diagnose(case.capture, source=case.capture.parent / "source", picture=True, embed_source=True)
    shown = str(render_text(verdict, width=120))

    assert " --> " in shown
    assert (told in shown) if told else ("diverged here" not in shown)


def test_a_rank_in_the_else_of_a_branch_is_not_said_to_be_under_its_condition(tmp_path: Path) -> None:
    program = """\
    import queue

    import torch.distributed as dist


    def main(rank, batches):
        if rank == 0:
            serve()
        else:
            work(batches)


    def work(batches):
        batch = batches.get()
        dist.all_reduce(batch)


    main(dist.get_rank(), queue.Queue())
    """
    (tmp_path / "worker.py").write_text(textwrap.dedent(program))
    at = str(tmp_path / "worker.py")
    stack = (Frame("get", "/usr/lib/python3.12/queue.py", 171), Frame("work", at, 14), Frame("main", at, 10))
    capture = hung().capture(stacks=(LiveStack(3, "rank_3.txt", 1, (*stack, Frame("<module>", at, 18))),))

    why = forkpoint.diagnose(capture, source=tmp_path).sites[0].why

    assert why == "rank 3 is stuck here, where `rank == 0` was false"


def test_a_rank_that_is_behind_is_not_said_to_wait_in_its_last_call() -> None:
    verdict = verdict_of("0061", source=True)
    behind = {rank for c in verdict.divergence.cohorts if c.role is Role.BEHIND for rank in c.ranks}  # type: ignore[union-attr]

    assert behind
    assert not any(f"rank {rank} waits here" in (site.why or "") for rank in behind for site in verdict.sites)


def test_a_helper_thread_is_not_said_to_be_what_the_main_thread_waits_for() -> None:
    stack = (Frame("control", "/train/launch.py", 17), Frame("get", "/usr/lib/python3.12/queue.py", 171))

    cited = cite_stack(LiveStack(5, "rank_5.txt", 7, stack, UNNAMED_THREAD))

    assert cited.says.startswith("its main thread waited, while another thread was in control (launch.py:17)")


def test_how_the_interpreter_waits_is_not_said_to_be_the_call() -> None:
    """py-spy's native frames of `with self.lock`, and of a call into a library."""
    waits = (Frame("??", "libc.so.6", 0), Frame("lock_PyThread_acquire_lock", "python3.11", 0))
    user = Frame("Cache.get", "/train/cache.py", 18)

    assert describe_stack((*waits, user)) == "in Cache.get (cache.py:18)"
    assert describe_stack((Frame("cudaStreamSynchronize", "libcudart.so.12", 0), user)).startswith("in cudaStream")
    headline = forkpoint.diagnose(hung().capture(stacks=(LiveStack(3, "rank_3.txt", 1, (*waits, user)),))).headline
    assert headline.startswith("Rank 3 is still in `get` (cache.py:18)")


def interrupted(file: str, rank: int) -> LogEvent:
    return LogEvent(LogKind.EXCEPTION, file, 40, rank, "KeyboardInterrupt", exception="KeyboardInterrupt")


def test_a_job_that_a_person_interrupted_is_not_said_to_have_ended_in_order() -> None:
    logs = tuple((f"rank_{rank}.log", rank) for rank in range(2))
    ends = {file: Ending(("bye",), done=30) for file, _ in logs}
    capture = SmallJob(2).capture((), logs=logs)

    calm = forkpoint.diagnose(replace(capture, log_ends=ends)).headline
    told = forkpoint.diagnose(replace(capture, log_ends=ends, events=tuple(interrupted(*log) for log in logs))).headline

    assert "the job ended in order" in calm
    assert told == "No fault found: a person interrupted the job, and no log reports a failure before that."


@for_each("seq, told", [(1, "never joined the job"), (113, "did not come when the others made a communicator")])
def test_a_rank_of_a_job_that_has_communicated_is_not_said_never_to_have_joined(seq: int, told: str) -> None:
    key = LogEvent(LogKind.STORE, "rank_1.log", 9, 1, "wait timeout", exception="DistStoreError")
    work = Work("ALLREDUCE", seq, 4, 4, 20_000, 20_010)
    timeout = LogEvent(LogKind.WATCHDOG_TIMEOUT, "rank_0.log", 8, 0, "Watchdog", seq=seq, work=work)
    logs = tuple((f"rank_{rank}.log", rank) for rank in range(4))

    readings = forkpoint.diagnose(SmallJob(4).capture((), events=(key, timeout), logs=logs)).hypotheses

    assert [told in h.says for h in readings if h.cause is Cause.NEVER_JOINED] == [True]


def test_a_library_s_own_source_line_is_not_quoted_as_what_it_says() -> None:
    text = "RuntimeError: [/w/gloo/unbound_buffer.cc:129] Timed out waiting 60000ms for send operation to complete"
    event = LogEvent(LogKind.PEER_TIMEOUT, "rank_0.log", 8, 0, text, exception="RuntimeError")

    assert raised(event)[0] == 'RuntimeError ("Timed out waiting 60000ms for send operation to complete")'


def test_a_program_that_ended_is_not_said_to_be_in_a_call() -> None:
    stack = (Frame("_shutdown", "/usr/lib/python3.12/threading.py", 1590),)
    report = (Frame("report", "/train/metrics.py", 6),)
    live = LiveStack(3, "rank_3.txt", 1, stack, None, 1, (("reporter", report),))

    headline = forkpoint.diagnose(hung().capture(stacks=(live,))).headline

    assert headline.startswith(
        "Rank 3 has ended its program, and its process waits for another of its threads (metrics.py:6)"
    )


C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
SAVE = (("save", "/train/train.py", 22), ("<module>", "/train/train.py", 99))


def without_stacks(world: int, waiting: tuple[int, ...]) -> SmallJob:
    """As a debug server answers: calls without the lines that made them."""
    job = SmallJob(world)
    for _ in range(5):
        job.op(line=None)
    job.op(waiting, name="barrier", line=None, done=False)
    return job


def stand(folder: Path, rank: int, call: str, *lines: tuple[str, str, int]) -> None:
    (folder / f"rank_{rank}_stacks.json").write_text(as_py_spy((call, C10D, 9), *lines))


def test_where_others_wait_is_told_by_their_stacks_if_the_recorder_kept_none(tmp_path: Path) -> None:
    for rank in (1, 2, 3):
        stand(tmp_path, rank, "barrier", *SAVE)

    verdict = written(tmp_path, without_stacks(4, (1, 2, 3)), range(4))

    assert verdict.headline == (
        "Rank 0 did not reach the barrier at train.py:22, where the other 3 wait; no stack shows what holds it."
    )


def test_a_stack_in_another_call_does_not_place_the_call_that_was_recorded(tmp_path: Path) -> None:
    for rank in (1, 2, 3):
        stand(tmp_path, rank, "all_reduce", *SAVE)

    assert "train.py:22" not in written(tmp_path, without_stacks(4, (1, 2, 3)), range(4)).headline


def test_a_command_that_failed_is_not_said_to_be_healthy(tmp_path: Path) -> None:
    (tmp_path / "ranks.json").write_text(render_ranks(None, None, stalled=False, exit_code=2))
    (tmp_path / "stderr.log").write_text("python: can't open file 'train.py': [Errno 2] No such file or directory\n")

    verdict = forkpoint.diagnose(forkpoint.read([str(tmp_path)]))

    assert verdict.headline == (
        "The command that ran the job ended with exit code 2, and nothing that was given shows why."
    )
    assert verdict.hypotheses == ()


def test_who_left_by_stacks_alone_is_said_once_with_both_places(tmp_path: Path) -> None:
    def at(*lines: tuple[str, int]) -> list[tuple[str, str, int]]:
        return [*((function, "/train/train.py", line) for function, line in lines), SAVE[-1]]

    for rank in (0, 1, 3):
        stand(tmp_path, rank, "all_reduce", *at(("run", 39), ("main", 50)))
    stand(tmp_path, 2, "broadcast", *at(("restore", 29), ("run", 37), ("main", 50)))

    assert forkpoint.diagnose(forkpoint.read([str(tmp_path)])).headline == (
        "Most likely rank 2 left the path of the others at train.py:37: it waits in broadcast at train.py:29, the other 3 "
        "wait in all_reduce at train.py:39."
    )


# ---------------------------------------------------------------------------------------------------------------------
# A job that is asked while it starts.

RENDEZVOUS = C10D.replace("distributed_c10d.py", "rendezvous.py")
IMPORTING = (("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241), ("<module>", "/job/train.py", 2))
JOINING = (("_create_c10d_store", RENDEZVOUS, 199), ("main", "/job/train.py", 15), ("<module>", "/job/train.py", 40))
LAZY = (*IMPORTING[:1], ("load", "/job/data.py", 7), ("main", "/job/train.py", 20), ("<module>", "/job/train.py", 40))


def stacks_of(folder: Path, *stacks: tuple[tuple[str, str, int], ...]) -> Verdict:
    for rank, frames in enumerate(stacks):
        (folder / f"rank_{rank}_stacks.json").write_text(as_py_spy(*frames))
    return forkpoint.diagnose(forkpoint.read([str(folder)]))


def test_ranks_that_import_are_said_to_start_and_the_one_that_waits_for_them_left_nobody(tmp_path: Path) -> None:
    verdict = stacks_of(tmp_path, IMPORTING, IMPORTING, JOINING, IMPORTING)

    assert verdict.suspects == ()
    assert verdict.headline == (
        "Most likely the job is starting: ranks 0-1 and 3 are importing modules (train.py:2), and rank 2 waits for them to "
        "join."
    )
    assert not any(2 in (reading.suspects or ()) for reading in verdict.hypotheses)


def test_an_import_in_the_middle_of_the_program_is_no_start(tmp_path: Path) -> None:
    assert "starting" not in said(stacks_of(tmp_path, JOINING, JOINING, LAZY, JOINING))
