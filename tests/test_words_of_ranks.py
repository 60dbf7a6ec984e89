"""What ranks compare, and what only one of them says or shows: models, debuggers, start-up, stacks beside dumps. Each with a near miss."""

from pathlib import Path

import forkpoint
from forkpoint.model.capture import LiveStack
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, TIMED_OUT, TORCH, diagnose, logs, raised, stack, torchrun_table


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


# ---------------------------------------------------------------------------------------------------------------------
# Models that DDP compares: who complains is mostly right.

SIZES = "RuntimeError: [{0}]: params[0] in this process with sizes [{1}, 48] appears not to match sizes of the same param in process 0."
COUNTS = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."
WRAP = ("/job/train.py", 37, "wrap")


def refuses(rank: int, error: str) -> str:
    return raised(rank, error, WRAP, call="_verify_param_shape_across_processes")


@for_each(
    "what, said, odd",
    [
        ("all others differ from rank 0", {r: refuses(r, SIZES.format(r, 938)) for r in (1, 2, 3)}, (0,)),
        ("two of four differ from rank 0", {r: refuses(r, SIZES.format(r, 938)) for r in (1, 2)}, ()),
        (
            "each names one that has another number of parameters",
            {r: refuses(r, COUNTS.format(r, 6, 2, 4)) for r in (0, 1, 3)} | {2: refuses(2, COUNTS.format(2, 4, 0, 6))},
            (2,),
        ),
        (
            "halves",
            {r: refuses(r, COUNTS.format(r, 6, 2, 4)) for r in (0, 1)}
            | {r: refuses(r, COUNTS.format(r, 4, 0, 6)) for r in (2, 3)},
            (),
        ),
    ],
)
def test_of_models_that_differ_the_one_that_most_ranks_do_not_have_is_named(
    tmp_path: Path, what: str, said: dict[int, str], odd: tuple[int, ...]
) -> None:
    rest = {r: raised(r, CLOSED, WRAP, call="_sync_module_states") for r in range(4) if r not in said}

    verdict = diagnose(tmp_path / what, logs(said | rest))

    assert verdict.suspects == odd
    assert verdict.cause is (Cause.METADATA_MISMATCH if odd else Cause.INCONCLUSIVE)


def test_a_rank_that_was_ended_before_it_could_complain_does_not_vote_against_the_one_that_did(tmp_path: Path) -> None:
    said = logs({3: refuses(3, SIZES.format(3, 938)), 0: "", 1: "", 2: ""})

    assert diagnose(tmp_path, said).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# A debugger that asks for a command.


def stands(*, prompt: int | None) -> Verdict:
    job = SmallJob(4, lib="gloo")
    for _ in range(3):
        job.op()
    job.op([0, 1, 3], done=False)
    asked = () if prompt is None else (LogEvent(LogKind.DEBUGGER, "console", 9, prompt, "(Pdb) "),)
    return forkpoint.diagnose(job.capture([0, 2, 3], events=asked))


def test_a_rank_whose_debugger_asks_while_others_wait_for_it_is_held() -> None:
    verdict = stands(prompt=2)

    assert answer(verdict) == (Cause.HOST_STALL, (2,))
    assert verdict.headline.startswith(
        "Rank 2 waits at the prompt of a debugger; ranks 0 and 3 wait for it in all_reduce"
    )


def test_a_prompt_of_a_rank_that_came_to_the_call_names_nobody() -> None:
    assert stands(prompt=0).suspects == ()


def test_a_prompt_is_read_with_the_rank_that_it_is_of(tmp_path: Path) -> None:
    console = "".join(f"[default{r}]:10:00:0{s} rank{r} step {s}\n" for s in range(3) for r in range(4))
    (tmp_path / "console.txt").write_text(f"{console}[default2]:(Pdb) [default1]:10:00:03 rank1 step 3\n")

    events = forkpoint.read([str(tmp_path)]).events

    assert [(e.kind, e.rank) for e in events] == [(LogKind.DEBUGGER, 2)]


# ---------------------------------------------------------------------------------------------------------------------
# A rank that fails before the job has met.

STORE = "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: /0//cpu//0/0"
IMPORT = "Traceback (most recent call last):\n  File \"/job/encoder.py\", line 4, in <module>\n    import fastnorm\nModuleNotFoundError: No module named 'fastnorm'\n"


def test_a_rank_that_raised_while_the_others_were_in_init_process_group_never_joined(tmp_path: Path) -> None:
    said = {r: raised(r, STORE, call="init_process_group") for r in (1, 2)}

    verdict = diagnose(tmp_path, logs(said | {3: IMPORT}))

    assert answer(verdict) == (Cause.NEVER_JOINED, (3,))
    assert "it raised ModuleNotFoundError (\"No module named 'fastnorm'\") at encoder.py:4" in verdict.headline


def test_a_rank_that_raised_while_one_of_the_others_was_in_a_collective_was_lost_by_then(tmp_path: Path) -> None:
    said = {1: raised(1, STORE, call="init_process_group"), 2: raised(2, CLOSED), 3: IMPORT, 0: raised(0, CLOSED)}

    assert answer(diagnose(tmp_path, logs(said))) == (Cause.RANK_LOST, (3,))


def test_a_rank_without_a_log_is_not_the_missing_one_where_another_failed_by_itself(tmp_path: Path) -> None:
    joined = "torch.distributed.DistStoreError: Timed out after 26 seconds waiting for clients. 5/6 clients joined."
    said = {0: raised(0, joined, call="init_process_group"), 3: IMPORT}
    said |= {r: raised(r, STORE, call="init_process_group") for r in (1, 4, 5)}

    assert answer(diagnose(tmp_path, logs(said))) == (Cause.NEVER_JOINED, (3,))


# ---------------------------------------------------------------------------------------------------------------------
# All but one gave up at one line.


@for_each(
    "what, own, named",
    [
        ("in its own code", stack(("/job/archive.py", 32, "pack"), call=None), (0,)),
        ("in a call of its own", stack(("/job/archive.py", 32, "pack"), call="barrier"), ()),
    ],
)
def test_the_only_rank_that_did_not_give_up_is_held_where_its_stack_is_outside(
    tmp_path: Path, what: str, own: str, named: tuple[int, ...]
) -> None:
    files = logs({r: raised(r, TIMED_OUT, call="barrier") for r in (1, 2, 3)} | {0: ""})
    table = torchrun_table((1, 1), (0, -15), (2, 1), (3, 1), stopped=(0, 2, 3))

    verdict = diagnose(tmp_path / what, files | {"stacks_rank_0.txt": own, "torchrun.log": table})

    assert [r for r in verdict.suspects if verdict.cause is Cause.HOST_STALL] == list(named)


# ---------------------------------------------------------------------------------------------------------------------
# Two sides of which no dump tells who differs: the stacks of those whose dumps are lost.


MODULE = Frame("<module>", "/train/train.py", 99)


def parted(place: int, *, waits: bool = True, seen: bool = True) -> Verdict:
    """Rank 0 left no dump, and stands at the line `place`. `seen`: stacks show that ranks 1 and 2 stand in their recorded calls."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=10)
    job.op([0, 1, 3], line=20, done=False)
    job.op([2], "all_gather", size=9, line=30, done=False)
    inside = (Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252),) if waits else ()
    lines = {0: place, **({1: 20, 2: 30} if seen else {})}
    stacks = tuple(
        LiveStack(rank, f"stacks_rank_{rank}.txt", 1, (*inside, Frame("step", "/train/train.py", line), MODULE))
        for rank, line in lines.items()
    )
    return forkpoint.diagnose(job.capture([1, 2, 3], stacks=stacks))


def test_a_member_without_a_dump_votes_with_the_side_in_whose_line_it_stands() -> None:
    assert answer(parted(20)) == (Cause.DIVERGENT_PATH, (2,))


def test_hosts_run_ahead_of_nccl_so_that_both_sides_must_be_seen_to_wait_in_their_calls() -> None:
    assert parted(20, seen=False).suspects == ()


@for_each("place, waits", [(50, True), (20, False)])
def test_a_member_that_stands_elsewhere_or_does_not_wait_votes_for_nobody(place: int, waits: bool) -> None:
    assert parted(place, waits=waits).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# What is no failure, and who may have gone.


def test_a_launcher_that_was_told_to_stop_is_no_failure() -> None:
    stopped = LogEvent(LogKind.AGENT_STOP, "log", 1, None, "got signal: 15", exception="SignalException")

    assert not stopped.is_failure


def test_nodes_whose_local_ranks_are_alike_own_the_logs_that_name_them(tmp_path: Path) -> None:
    for node, first in (("a", 0), ("b", 2)):
        for local in (0, 1):
            path = tmp_path / node / "logs" / "attempt_0" / str(local) / "stderr.log"
            path.parent.mkdir(parents=True)
            path.write_text(raised(first + local, CLOSED))

    assert sorted(rank for _, rank in forkpoint.read([str(tmp_path)]).logs if rank is not None) == [0, 1, 2, 3]


def test_the_only_silent_rank_is_not_lost_where_ranks_may_exist_that_nobody_heard_of(tmp_path: Path) -> None:
    """Of a job of unknown size: the one that closed the connections may have left no file at all."""
    said = {r: raised(r, CLOSED) for r in (1, 2, 3)} | {0: ""}

    assert diagnose(tmp_path, logs(said)).suspects == ()


SWALLOWED = '--- Logging error ---\nTraceback (most recent call last):\n  File "/job/board.py", line 23, in value\n    dist.all_gather(x)\n'


@for_each(
    "what, table, owners",
    [
        ("a file for each process", "", {0, 1}),
        ("a launcher's log beside it", torchrun_table((0, 1), (1, -15)), {None}),
    ],
)
def test_what_stands_without_a_rank_in_a_file_of_one_process_is_its_own(
    tmp_path: Path, what: str, table: str, owners: set[int | None]
) -> None:
    folder = tmp_path / what
    folder.mkdir()
    for rank in (0, 1):
        said = f"{SWALLOWED}{TIMED_OUT}\n{raised(rank, CLOSED)}{table if rank == 0 else ''}"
        (folder / f"worker-{rank}.log").write_text(said)

    events = forkpoint.read([str(folder)]).events

    assert {e.rank for e in events if e.kind is LogKind.PEER_TIMEOUT} == owners


def elsewhere(call: str, hosts_there: tuple[int, ...] = (0, 1)) -> Verdict:
    """Two dumps wait in one call; of the two that are lost one stands there too, and one in another call."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=10)
    job.op([0, 1, 3], line=20, done=False)
    c10d = f"{TORCH}/distributed/distributed_c10d.py"
    main = Frame("<module>", "/train/train.py", 99)
    there: Stack = (Frame("all_reduce", c10d, 3252), Frame("step", "/train/train.py", 20), main)
    aside: Stack = (Frame(call, c10d, 5070), Frame("evaluate", "/train/train.py", 60), main)
    waiting = (LiveStack(rank, f"stacks_rank_{rank}.txt", 1, there) for rank in hosts_there)
    return forkpoint.diagnose(job.capture([1, 3], stacks=(*waiting, LiveStack(2, "stacks_rank_2.txt", 1, aside))))


def test_a_lost_rank_that_stands_in_a_barrier_of_its_own_took_another_path() -> None:
    assert answer(elsewhere("barrier")) == (Cause.DIVERGENT_PATH, (2,))


def test_it_is_not_named_where_no_recorded_rank_is_seen_in_its_call_because_hosts_run_ahead_of_their_gpus() -> None:
    assert elsewhere("barrier", hosts_there=(0,)).suspects == ()


def test_a_lost_rank_that_stands_in_a_call_with_sizes_may_have_brought_others_and_is_not_named() -> None:
    assert elsewhere("all_gather").suspects == ()


def test_where_connections_broke_and_nobody_timed_out_the_silent_rank_is_the_first_reading(tmp_path: Path) -> None:
    send = {r: raised(r, CLOSED, ("/job/pipe.py", 30 + r, "step"), call="send") for r in (0, 1, 3)}

    verdict = diagnose(tmp_path, logs(send | {2: ""}))

    assert (verdict.suspects, verdict.hypotheses[0].suspects) == ((), (2,))


# ---------------------------------------------------------------------------------------------------------------------
# A store that no longer answers says nothing of the calls of those who asked it.

PIPE = "torch.distributed.DistNetworkError: Broken pipe"


def test_ranks_that_lost_the_store_are_not_said_to_have_made_other_calls(tmp_path: Path) -> None:
    said = {
        2: raised(2, PIPE, ("/job/train.py", 22, "send")),
        3: raised(3, PIPE, ("/job/train.py", 31, "recv")),
        0: "done\n",
    }
    verdict = diagnose(tmp_path, logs(said))

    assert answer(verdict) == (Cause.INCONCLUSIVE, ())
    assert "the process that hosts the store" in verdict.hypotheses[0].says


def test_a_closed_connection_beside_it_may_be_of_a_peer(tmp_path: Path) -> None:
    said = {2: raised(2, PIPE), 3: raised(3, CLOSED), 0: "step 3\n"}

    assert not any("hosts the store" in h.says for h in diagnose(tmp_path, logs(said)).hypotheses)
