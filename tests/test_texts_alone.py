"""What logs, tracebacks and stacks decide where nothing was recorded, and what they do not."""

from pathlib import Path

import pytest

from forkpoint.model.verdict import Cause
from looping import for_each
from texts import CLOSED, MAIN, REFUSED, TIMED_OUT, diagnose, logs, raised, stack, torchrun_table

EVAL = ("/job/evaluate.py", 12, "evaluate")
AT = "2026-11-16 02:39:{:02d},600 r{} step {}\n"


def stacks(places: dict[int, str]) -> dict[str, str]:
    return {f"stacks_rank_{rank}.txt": text for rank, text in places.items()}


def test_sizes_refused_at_one_call_do_not_fit(tmp_path: Path) -> None:
    said = {r: raised(r, CLOSED) for r in (0, 1, 2)} | {3: REFUSED + stack(MAIN)}

    assert diagnose(tmp_path, logs(said)).cause is Cause.METADATA_MISMATCH


def test_sizes_refused_while_ranks_are_at_different_calls_are_not_decided(tmp_path: Path) -> None:
    said = {r: raised(r, CLOSED) for r in (0, 1, 2)} | {3: REFUSED + stack(EVAL)}

    assert diagnose(tmp_path, logs(said)).cause is Cause.INCONCLUSIVE


def test_the_only_rank_that_says_it_dropped_a_batch_took_another_path(tmp_path: Path) -> None:
    said = {r: raised(r, CLOSED) for r in (0, 2, 3)} | {
        1: "rank 1 step 37: non-finite loss nan, batch dropped\n" + REFUSED
    }

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (1,))


def test_a_batch_that_two_ranks_dropped_tells_nobody_apart(tmp_path: Path) -> None:
    dropped = "non-finite loss nan, batch dropped\n"
    said = {r: dropped + raised(r, CLOSED) for r in (0, 2)} | {3: raised(3, CLOSED), 1: dropped + REFUSED}

    assert diagnose(tmp_path, logs(said)).suspects == ()


def test_a_rank_that_went_on_printing_while_all_others_waited_was_late(tmp_path: Path) -> None:
    working = "".join(AT.format(second, 0, second) for second in range(10, 40))
    said = {r: AT.format(10, r, 1) + raised(r, TIMED_OUT) for r in (1, 2, 3)} | {0: working}

    verdict = diagnose(tmp_path, {f"log_rank_{r}.txt": text for r, text in said.items()})

    assert (verdict.cause, verdict.suspects) == (Cause.STRAGGLER, (0,))


def test_a_rank_that_stopped_printing_with_the_others_is_not_said_to_be_late(tmp_path: Path) -> None:
    said = {r: AT.format(10, r, 1) + raised(r, TIMED_OUT) for r in (1, 2, 3)} | {0: AT.format(11, 0, 1)}

    assert diagnose(tmp_path, {f"log_rank_{r}.txt": text for r, text in said.items()}).suspects == ()


MISSED = "[rank0]: RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 20000 ms\n"
REACHED = "RuntimeError: Rank {0} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."


@pytest.mark.parametrize(
    ("own", "cause", "suspects"),
    [
        pytest.param("", Cause.HOST_STALL, (3,), id="it lived until the launcher stopped it, and never came"),
        pytest.param(raised(3, REACHED.format(3)), Cause.STRAGGLER, (3,), id="it came when the others had given up"),
    ],
)
def test_who_missed_a_barrier_is_named_by_rank_0(
    tmp_path: Path, own: str, cause: Cause, suspects: tuple[int, ...]
) -> None:
    said = {
        0: '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/job/train.py", line 9, in main\n' + MISSED
    }
    said |= {r: raised(r, REACHED.format(r)) for r in (1, 2)} | {3: own}
    console = torchrun_table((0, 1), (1, -15), (2, -15), (3, -15))

    verdict = diagnose(tmp_path, {**logs(said), "console.log": console})

    assert (verdict.cause, verdict.suspects) == (cause, suspects)


PRINT = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: {}, but Rank {} is running collective: {}.Collectives differ in the following aspects: \t x"
CALL = "CollectiveFingerPrint(SequenceNumber=7, OpType={}, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=x)"


@pytest.mark.parametrize(
    ("odd", "cause"), [(("ALLREDUCE", 6), Cause.METADATA_MISMATCH), (("BROADCAST", 4), Cause.DIVERGENT_PATH)]
)
def test_calls_that_ranks_compared_before_they_made_them_name_the_odd_one(
    tmp_path: Path, odd: tuple[str, int], cause: Cause
) -> None:
    usual, other = CALL.format("ALLREDUCE", 4), CALL.format(*odd)
    said = {r: raised(r, PRINT.format(r, usual, 2, other)) for r in (0, 1, 3)} | {
        2: raised(2, PRINT.format(2, other, 0, usual))
    }

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects) == (cause, (2,))


def test_two_sides_of_equal_size_accuse_nobody(tmp_path: Path) -> None:
    one, other = CALL.format("ALLREDUCE", 4), CALL.format("ALLREDUCE", 6)
    said = {r: raised(r, PRINT.format(r, one, 2, other)) for r in (0, 1)}
    said |= {r: raised(r, PRINT.format(r, other, 0, one)) for r in (2, 3)}

    assert diagnose(tmp_path, logs(said)).suspects == ()


def test_stacks_that_part_name_who_left_the_path_of_the_others(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, stacks({0: stack(), 1: stack(), 2: stack(EVAL, call="barrier"), 3: stack()}))

    assert verdict.suspects == (2,)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(stack(EVAL, call="recv"), id="a message: its sender may be who left"),
        pytest.param(stack(("/job/tensor_parallel.py", 3, "reduce")), id="a call of a part of the job"),
        pytest.param(stack(EVAL).rsplit("\n", 2)[0] + "\n", id="a stack whose outer end is cut"),
    ],
)
def test_stacks_that_part_for_other_reasons_name_nobody(tmp_path: Path, odd: str) -> None:
    assert diagnose(tmp_path, stacks({0: stack(), 1: stack(), 2: odd, 3: stack()})).suspects == ()


def test_a_rank_whose_writer_is_held_by_storage_while_all_main_threads_wait_is_named(tmp_path: Path) -> None:
    main = stack(call=None).replace(
        '  File "/job/train.py", line 40 in main',
        '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n'
        '  File "/usr/lib/python3.11/concurrent/futures/_base.py", line 451 in result\n'
        '  File "/job/train.py", line 40 in main',
    )
    pool = '  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 58 in run\n  File "/usr/lib/python3.11/threading.py", line 1010 in run\n'
    gather = f'Thread 0x1 (most recent call first):\n  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in gather_object\n{pool}\n'
    held = f'Thread 0x1 (most recent call first):\n  File "/usr/lib/python3.11/pathlib.py", line 1015 in open\n  File "/job/save.py", line 3 in write\n{pool}\n'

    verdict = diagnose(tmp_path, stacks({r: (held if r == 2 else gather) + main for r in range(4)}))

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (2,))


MADE = "[I1116 03:11:01.959692207 ProcessGroupNCCL.cpp:988] [PG ID {0} PG GUID {0} Rank 0] ProcessGroupNCCL initialization options: size: {1}, global rank: {2}, TIMEOUT(ms): 15000, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, SPLIT_COLOR: -2, PG Name: {0}\n"


def test_groups_that_were_not_made_alike_are_another_path(tmp_path: Path) -> None:
    said = {r: MADE.format(0, 4, r) + MADE.format(1, 2 if r < 2 else 4, r) for r in range(4)}

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, ())


def test_groups_of_equal_names_and_sizes_are_made_alike(tmp_path: Path) -> None:
    said = {r: MADE.format(0, 4, r) + MADE.format(1 + r // 2, 2, r) for r in range(4)}

    assert diagnose(tmp_path, logs(said)).cause is Cause.INCONCLUSIVE


def test_a_job_that_a_person_interrupted_while_all_were_at_one_place_is_healthy(tmp_path: Path) -> None:
    assert diagnose(tmp_path, logs({r: raised(r, "KeyboardInterrupt") for r in range(4)})).cause is Cause.HEALTHY


def test_a_job_that_was_interrupted_while_one_rank_was_elsewhere_is_not_called_healthy(tmp_path: Path) -> None:
    said = {r: raised(r, "KeyboardInterrupt", *([EVAL] if r == 2 else [])) for r in range(4)}

    assert diagnose(tmp_path, logs(said)).cause is Cause.INCONCLUSIVE


RETRY = 'ERROR attempt 3 of 6 failed: Connection reset by peer\nTraceback (most recent call last):\n  File "/job/s3.py", line 3, in get\nStoreTimeout: GET part-58: timed out\n'


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        pytest.param("rank {}: training complete\n", Cause.HEALTHY, id="the program is done"),
        pytest.param("rank {} step 80 done\n", Cause.INCONCLUSIVE, id="a step is done"),
        pytest.param("rank {} step 80\n", Cause.INCONCLUSIVE, id="nothing is said to be done"),
    ],
)
def test_errors_after_which_every_rank_says_that_it_is_done_were_handled(
    tmp_path: Path, last: str, cause: Cause
) -> None:
    assert diagnose(tmp_path, logs({r: RETRY + last.format(r) for r in range(4)})).cause is cause


RETRY = "05:29:{:02d} data: GET /shard-1/0009 -> 503 Slow Down, retrying in 2.0s (attempt {})\n"


def test_a_rank_that_tries_again_and_again_while_the_others_give_up_is_held(tmp_path: Path) -> None:
    retrying = "".join(RETRY.format(2 + 2 * attempt, attempt) for attempt in range(15))
    said = {r: "05:29:02 iter 9\n" + raised(r, TIMED_OUT) for r in (0, 2, 3)} | {1: retrying}

    verdict = diagnose(tmp_path, {f"log_rank_{r}.txt": text for r, text in said.items()})

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (1,))


def test_times_with_and_without_a_date_are_not_compared(tmp_path: Path) -> None:
    retrying = "".join(RETRY.format(2 + 2 * attempt, attempt) for attempt in range(15))
    said = {r: AT.format(2, r, 1) + raised(r, TIMED_OUT) for r in (0, 2, 3)} | {1: retrying}

    assert diagnose(tmp_path, {f"log_rank_{r}.txt": text for r, text in said.items()}).suspects == ()


def test_a_rank_that_says_it_is_done_while_all_others_lose_their_connection_left(tmp_path: Path) -> None:
    said = {r: raised(r, CLOSED) for r in (0, 1, 2)} | {3: "training complete after 20 steps\n"}

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (3,))


def test_a_rank_that_is_done_while_one_of_the_others_is_not_heard_is_not_said_to_have_left(tmp_path: Path) -> None:
    said = {r: raised(r, CLOSED) for r in (0, 1)} | {2: "", 3: "training complete after 20 steps\n"}

    assert diagnose(tmp_path, logs(said)).suspects == ()


def test_a_killed_worker_of_a_data_loader_is_no_path_of_the_code(tmp_path: Path) -> None:
    died = "RuntimeError: DataLoader worker (pid 21140) is killed by signal: Killed. "
    said = {r: raised(r, CLOSED) for r in (0, 1, 2)} | {3: raised(3, died)}

    verdict = diagnose(tmp_path, logs(said))

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (3,))


def hashes(odd: dict[int, dict[int, str]]) -> str:
    """One console of four ranks. `odd`: by step, what ranks print in place of the usual checksum."""
    lines = [
        f"05:42:21 [rank {rank}] step {step} loss 0.00{rank} param_sha1 {odd.get(step, {}).get(rank, f'ee9c7b2b9f{step:02d}')}"
        for step in (10, 20, 30, 40)
        for rank in (3, 1, 2, 0)
    ]
    return "\n".join(lines) + "\ntraining done\n"


def test_a_printed_checksum_of_the_model_that_one_rank_alone_differs_in_is_silent_corruption(tmp_path: Path) -> None:
    verdict = diagnose(tmp_path, {"nohup.out": hashes({30: {2: "fc6084ddad5d"}, 40: {2: "0c6084ddad5e"}})})

    assert (verdict.cause, verdict.suspects) == (Cause.SILENT_CORRUPTION, (2,))


@pytest.mark.parametrize(
    "odd",
    [
        {step: {r: f"fc6084ddad{r}{step}" for r in range(4)} for step in (10, 20, 30, 40)},
        {40: {2: "fc6084ddad5d"}},
        {step: {2: "fc6084ddad5d", 3: "fc6084ddad5d"} for step in (30, 40)},
        {20: {2: "fc6084ddad5d"}, 30: {2: "fc6084ddad5d"}},
    ],
    ids=["of shards", "at one step only", "of two halves", "equal again"],
)
def test_checksums_that_single_nobody_out_name_nobody(tmp_path: Path, odd: dict[int, dict[int, str]]) -> None:
    assert diagnose(tmp_path, {"nohup.out": hashes(odd)}).suspects == ()


def test_ranks_that_ended_at_one_step_of_which_one_says_that_it_was_done_are_well(tmp_path: Path) -> None:
    steps = "epoch 1 step 25 loss 0.1\nepoch 1 step 30 loss 0.1\n"
    files = {"log_rank_0.txt": steps + "training finished\n", "log_rank_1.txt": "ERROR read timeout, retry\n" + steps}

    assert diagnose(tmp_path, files).cause is Cause.HEALTHY


def test_a_rank_that_ended_at_an_earlier_step_than_the_one_that_was_done_is_not_said_to_be_well(tmp_path: Path) -> None:
    files = {"log_rank_0.txt": "step 25\nstep 30\ntraining finished\n", "log_rank_1.txt": "step 20\nstep 25\n"}

    assert diagnose(tmp_path, files).cause is Cause.INCONCLUSIVE


def _at(line: int, call: str) -> str:
    return stack(("/job/train.py", line, "main"), call=call)


@pytest.mark.parametrize(
    ("usual", "odd", "cause"),
    [
        (_at(40, "broadcast_object_list"), _at(50, "all_reduce"), Cause.DIVERGENT_PATH),
        (_at(40, "all_reduce"), _at(50, "broadcast_object_list"), Cause.INCONCLUSIVE),
        (_at(50, "barrier"), _at(40, "all_reduce"), Cause.INCONCLUSIVE),
        (_at(50, "all_reduce"), _at(40, "barrier"), Cause.DIVERGENT_PATH),
    ],
    ids=["who skipped", "who may have brought less", "who may have brought more", "who waits alone"],
)
def test_stacks_that_part_are_another_path_where_those_behind_brought_no_sizes(
    tmp_path: Path, usual: str, odd: str, cause: Cause
) -> None:
    verdict = diagnose(tmp_path, {f"stack_rank_{rank}.txt": odd if rank == 2 else usual for rank in range(4)})
    assert (verdict.cause, verdict.suspects) == (cause, (2,))


def test_stacks_alone_say_where_both_sides_wait(tmp_path: Path) -> None:
    usual, odd = _at(40, "broadcast_object_list"), _at(50, "all_reduce")

    verdict = diagnose(tmp_path, stacks({0: usual, 1: usual, 2: odd, 3: usual}))

    told = "it waits in all_reduce at train.py:50, the other 3 wait in broadcast_object_list at train.py:40"
    assert verdict.headline == f"Rank 2 left the path of the others: {told}."


def test_stacks_alone_say_who_waits_for_the_one_that_is_stuck(tmp_path: Path) -> None:
    stuck = stack(("/usr/lib/python3.11/queue.py", 171, "get"), ("/job/data.py", 7, "load"), call=None)

    verdict = diagnose(tmp_path, stacks({0: stack(), 1: stack(), 2: stuck, 3: stack()}))

    assert (
        verdict.headline
        == "Rank 2 is still in `queue.get` (data.py:7); the other 3 wait for it in all_reduce (train.py:40)."
    )


def test_a_console_in_which_every_rank_says_that_it_is_done_is_of_a_healthy_job(tmp_path: Path) -> None:
    said = [f"rank {rank} epoch 1 done\nrank {rank} training complete" for rank in (2, 0, 3, 1)]
    assert diagnose(tmp_path, {"nohup.out": "\n".join(said) + "\n"}).cause is Cause.HEALTHY
    assert diagnose(tmp_path, {"nohup.out": "\n".join(said[:3]) + "\n"}).cause is Cause.INCONCLUSIVE


def _gave_up(line: int, call: str, rank: int) -> str:
    return raised(rank, TIMED_OUT, ("/job/train.py", line, "main"), call=call)


CRASHED = "terminate called without an active exception\n"


@for_each(
    ("usual", "odd", "also", "cause"),
    [
        ((40, "all_gather"), (50, "broadcast"), "", Cause.DIVERGENT_PATH),
        ((40, "all_gather"), (50, "broadcast"), REFUSED, Cause.INCONCLUSIVE),
        ((40, "all_gather"), (50, "broadcast"), CRASHED, Cause.INCONCLUSIVE),
        (
            (40, "all_reduce"),
            (50, "all_gather"),
            "",
            Cause.INCONCLUSIVE,
        ),  # few elements: more messages, none of them too long
        ((40, "broadcast"), (50, "all_gather"), "", Cause.INCONCLUSIVE),
        ((40, "gather"), (50, "all_gather"), "", Cause.INCONCLUSIVE),
    ],
    ids=["all_gather", "a size was refused", "a process crashed", "all_reduce", "broadcast", "gather"],
)
def test_ranks_behind_that_gave_up_in_a_call_that_ends_who_brings_another_size_did_not_bring_one(
    tmp_path: Path, usual: tuple[int, str], odd: tuple[int, str], also: str, cause: Cause
) -> None:
    said = {rank: _gave_up(*(odd if rank == 2 else usual), rank) for rank in range(5)}

    verdict = diagnose(tmp_path, {**logs(said), **({"console.log": also} if also else {})})

    assert verdict.cause is cause
    assert verdict.suspects == ((2,) if cause is Cause.DIVERGENT_PATH else verdict.suspects)


SKIPPED = "WARNING non-finite loss at epoch 8 step 23, batch skipped\n"


@for_each(
    "what, usual, odd, notice, named",
    [
        ("it alone says so", (40, "all_reduce"), (50, "all_gather"), {6: SKIPPED}, (6,)),
        ("nobody says so", (40, "all_reduce"), (50, "all_gather"), {}, ()),
        ("another says so", (40, "all_reduce"), (50, "all_gather"), {4: SKIPPED}, ()),
        (
            "some can be past the call without the rank that is not seen",
            (40, "broadcast"),
            (50, "all_gather"),
            {6: SKIPPED},
            (),
        ),
    ],
)
def test_the_rank_that_left_something_out_and_waits_elsewhere_than_most_took_another_path(
    tmp_path: Path,
    what: str,
    usual: tuple[int, str],
    odd: tuple[int, str],
    notice: dict[int, str],
    named: tuple[int, ...],
) -> None:
    """Of seven ranks the log of one is lost."""
    said = {r: notice.get(r, "") + _gave_up(*(odd if r == 6 else usual), r) for r in (0, 1, 2, 4, 5, 6)}
    said[0] = MADE.format(0, 7, 0) + said[0]

    verdict = diagnose(tmp_path / what, logs(said))

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH if named else Cause.INCONCLUSIVE, named)


def test_places_of_ranks_that_only_lost_connections_may_differ_because_one_that_is_not_seen_died(
    tmp_path: Path,
) -> None:
    said = {r: raised(r, CLOSED, ("/job/train.py", 40, "main")) for r in (0, 1, 2, 4, 5)}
    said[6] = SKIPPED + raised(6, CLOSED, ("/job/train.py", 50, "main"), call="all_gather")
    said[0] = MADE.format(0, 7, 0) + said[0]

    assert diagnose(tmp_path, logs(said)).suspects == ()


OWN_ERROR = '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/job/data.py", line 3, in get\n[rank2]: ValueError: bad sample\n'
STOPPED = "W1118 05:20:29.517000 14566 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
ANSWER = '  File "/usr/lib/python3.11/socket.py", line 706 in readinto\n'


def _held(function: str, inside: str = ANSWER) -> str:
    own = f'  File "/job/tracker.py", line 21 in {function}\n'
    return stack(call=None).replace('  File "/job/train.py", line 40', f'{inside}{own}  File "/job/train.py", line 40')


@for_each(
    "what, own, console, named",
    [
        ("it waits for a service", _held("metrics"), STOPPED, (0,)),
        ("nothing says that the job stood", _held("metrics"), "", ()),
        ("a rank had failed", _held("metrics"), OWN_ERROR + STOPPED, (2,)),
        ("it waits for a lock", _held("take_lock"), STOPPED, ()),
        ("it sleeps between two looks", _held("metrics", ""), STOPPED, ()),
    ],
)
def test_of_two_ranks_that_are_seen_the_one_that_waits_for_a_service_holds_the_others(
    tmp_path: Path, what: str, own: str, console: str, named: tuple[int, ...]
) -> None:
    """Rank 2 is heard, and its stack is lost."""
    files = {"log_rank_2.txt": "step 7\n", "console.log": f"started\n{console}"}

    verdict = diagnose(tmp_path / what, {**stacks({0: own, 1: stack()}), **files})

    assert verdict.suspects == named
