"""Who is odd where a group's own vote does not tell: common ends, groups beside it, side threads, closed doors. Each with a near miss."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import forkpoint
from forkpoint.model.capture import LiveStack, SourceFacts
from forkpoint.model.frames import program_lines
from forkpoint.model.log import Ending, LogEvent, LogKind, Work
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import with_logs

C10D = "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
IN_GATHER: Stack = (Frame("all_gather", C10D, 4287), Frame("share", "/train/ckpt.py", 31))
IN_OPEN: Stack = (Frame("write", "/train/ckpt.py", 40), Frame("run", "/usr/lib/python3.12/threading.py", 982))
ON_EVENT: Stack = (Frame("wait", "/usr/lib/python3.12/threading.py", 359), Frame("submit", "/train/ckpt.py", 22))
IN_RECV: Stack = (
    Frame("recv", C10D, 2799),
    Frame("step", "/train/pipe.py", 62),
    Frame("<module>", "/train/pipe.py", 90),
)
AT_BARRIER: Stack = (
    Frame("barrier", C10D, 5070),
    Frame("main", "/train/prep.py", 30),
    Frame("<module>", "/train/prep.py", 40),
)
TIMED_OUT = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete"
)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:2001"


def _answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


# ---------------------------------------------------------------------------------------------------------------------
# The rank at which all unmatched channels meet.


def _sizes_differ(channels: Iterable[tuple[int, int]]) -> Verdict:
    job = SmallJob(4)
    for source, destination in ((0, 1), (1, 2), (2, 3)):
        odd = (source, destination) in set(channels)
        job.send(source, destination, input_sizes=[[8]], done=not odd)
        job.recv(destination, source, output_sizes=[[4 if odd else 8]], input_sizes=[[4 if odd else 8]], done=not odd)
    return forkpoint.diagnose(job.capture())


def test_the_common_end_of_unmatched_channels_is_the_odd_one() -> None:
    assert _answer(_sizes_differ([(0, 1), (1, 2)])) == (Cause.METADATA_MISMATCH, (1,))


def test_of_one_unmatched_channel_neither_end_is_named() -> None:
    assert _answer(_sizes_differ([(0, 1)])) == (Cause.METADATA_MISMATCH, ())


# ---------------------------------------------------------------------------------------------------------------------
# What groups beside a group did.

ROWS = {str(n): ("tp", (2 * n - 2, 2 * n - 1)) for n in range(1, 5)}


def _other_size(odd: int, *, beside: int) -> Verdict:
    """Groups of two, in which one member cannot be outvoted; only so many groups beside the first are given."""
    job = SmallJob(8, groups=ROWS)
    for _ in range(10):
        for group in ROWS:
            job.op(group=group)
    for group, (_, ranks) in ROWS.items():
        for rank in ranks:
            job.op(ranks=[rank], group=group, size=8 if rank == odd else 4, done=odd not in ranks)
    return forkpoint.diagnose(job.capture(range(2 * (1 + beside))))


def test_groups_beside_a_group_tell_which_of_its_two_members_is_odd() -> None:
    assert _answer(_other_size(1, beside=3)) == (Cause.METADATA_MISMATCH, (1,))


def test_one_group_beside_it_is_too_few_to_tell() -> None:
    assert _answer(_other_size(1, beside=1)) == (Cause.METADATA_MISMATCH, ())


def _other_program(ranks: Iterable[int], *, alike: bool) -> Verdict:
    """The first of five pairs evaluates and waits for all; the others train on and wait for members of that pair. `alike`:
    all pairs did the same before, else each made a call of its own.
    """
    pairs = {str(n): ("tp", (2 * n - 2, 2 * n - 1)) for n in range(1, 6)}
    job = SmallJob(10, groups={**pairs, "6": ("dp", (0, 2, 4, 6, 8)), "7": ("dp", (1, 3, 5, 7, 9))})
    for step in range(10):
        for group in pairs:
            job.op(group=group, line=11 if alike or step < 9 else 60 + int(group))
        job.op(group="6", line=12)
        job.op(group="7", line=12)
    for _ in range(3):
        job.op(group="1", line=40)
    job.op(ranks=[0, 1], line=41, done=False)
    for group in ("6", "7"):
        job.op(ranks=[r for r in job.groups[group][1] if r > 1], group=group, line=13, done=False)
    return forkpoint.diagnose(job.capture(ranks))


def test_ranks_that_left_the_program_of_their_replicas_together_are_named_together() -> None:
    assert _answer(_other_program((0, 1, 2, 4, 5, 7), alike=True)) == (Cause.DIVERGENT_PATH, (0, 1))


def test_ranks_whose_replicas_do_not_agree_with_each_other_are_not_named() -> None:
    assert _other_program((0, 1, 2, 4, 5, 7), alike=False).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Arguments that are new to one side: what a rank used to do is no proof against it.


def _new_size(*, dumps: Iterable[int]) -> Verdict:
    """Rank 1 brings another size than the others, and than before."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(name="all_gather", size=4)
    job.op(ranks=[0, 2, 3], name="all_gather", size=4, done=False)
    job.op(ranks=[1], name="all_gather", size=8, done=False)
    return forkpoint.diagnose(job.capture(dumps))


def test_a_new_size_is_its_rank_s_own_where_most_of_all_ranks_bring_another() -> None:
    assert _answer(_new_size(dumps=range(4))) == (Cause.METADATA_MISMATCH, (1,))


def test_a_new_size_accuses_nobody_while_a_missing_dump_could_make_it_two_against_two() -> None:
    assert _answer(_new_size(dumps=(0, 1, 3))) == (Cause.METADATA_MISMATCH, ())


# ---------------------------------------------------------------------------------------------------------------------
# A message that both ends issued, and that one end never started.


def _message(sent: str, received: str, other: str = "") -> Verdict:
    """`other`: the state of a call of another group in which the sender is, too."""
    started = {"time_discovered_started_ns": 1_794_705_486_000_000_001}
    job = SmallJob(2, groups={"1": ("pair", (0, 1))})
    job.op(**started)
    if other:
        job.op(group="1", state=other, done=False, **started)
    job.send(0, 1, state=sent, done=False, **(started if sent == "started" else {}))
    job.recv(1, 0, state=received, done=False, **(started if received == "started" else {}))
    return forkpoint.diagnose(job.capture())


def test_the_end_that_never_started_its_message_has_a_gpu_that_is_held() -> None:
    assert _answer(_message("scheduled", "started")) == (Cause.GPU_STALL, (0,))


def test_a_message_that_neither_end_started_names_no_gpu() -> None:
    assert _message("scheduled", "scheduled").suspects == ()


def test_an_end_that_has_started_another_call_is_held_by_that_call() -> None:
    assert _message("scheduled", "started", other="started").suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# A thread that waits for ranks on all but one of them.


def _threads(stacks: dict[int, Stack]) -> Verdict:
    live = tuple(
        LiveStack(rank, f"stacks_{rank}", 1, ON_EVENT, others=(("writer", stack),)) for rank, stack in stacks.items()
    )
    return forkpoint.diagnose(SmallJob(4).capture((), stacks=live))


def test_the_rank_whose_thread_is_not_in_the_collective_of_the_others_holds_them() -> None:
    assert _answer(_threads({0: IN_GATHER, 1: IN_OPEN, 2: IN_GATHER, 3: IN_GATHER})) == (Cause.HOST_STALL, (1,))


def test_an_even_split_of_threads_names_nobody() -> None:
    assert _answer(_threads({0: IN_GATHER, 1: IN_OPEN, 2: IN_GATHER, 3: IN_OPEN})) == (Cause.INCONCLUSIVE, ())


# ---------------------------------------------------------------------------------------------------------------------
# Calls that no dump holds.


def _all_done(stack: Stack) -> Verdict:
    job = SmallJob(4, lib="gloo")
    job.op()
    live = tuple(LiveStack(rank, f"stacks_{rank}", 1, stack) for rank in range(4))
    return forkpoint.diagnose(job.capture(stacks=live, logs=tuple((f"log_{rank}", rank) for rank in range(4))))


def test_ranks_in_a_call_that_no_dump_holds_are_not_healthy() -> None:
    assert _all_done(IN_RECV).cause is Cause.INCONCLUSIVE


def test_ranks_that_compute_are_healthy() -> None:
    assert _all_done((Frame("matmul", "/train/model.py", 12),)).cause is Cause.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# Who came when the others had timed out and gone.


def _ends(closed: Iterable[int], elsewhere: Iterable[int] = ()) -> Verdict:
    away = {rank: (Frame("all_reduce", C10D, 3252), Frame("main", "/train/prep.py", 36)) for rank in elsewhere}
    events = tuple(
        LogEvent(
            LogKind.NETWORK if rank in set(closed) else LogKind.PEER_TIMEOUT,
            f"log_{rank}",
            9,
            rank,
            CLOSED if rank in set(closed) else TIMED_OUT,
            stack=away.get(rank, AT_BARRIER),
            exception="RuntimeError",
        )
        for rank in range(6)
    )
    return forkpoint.diagnose(
        SmallJob(6).capture((), events=events, logs=tuple((f"log_{rank}", rank) for rank in range(6)))
    )


def test_a_rank_that_came_when_the_others_had_timed_out_is_a_straggler() -> None:
    assert _answer(_ends(closed=[5])) == (Cause.STRAGGLER, (5,))


def test_half_of_the_ranks_are_no_stragglers() -> None:
    assert _ends(closed=[3, 4, 5]).cause is not Cause.STRAGGLER


def test_a_rank_that_ended_at_another_line_is_no_straggler() -> None:
    assert _ends(closed=[5], elsewhere=[5]).cause is not Cause.STRAGGLER


# ---------------------------------------------------------------------------------------------------------------------
# Amounts of an all_to_all of which a member is not seen.


def _amounts(sent: dict[int, int], received: dict[int, int]) -> Verdict:
    job = SmallJob(4)
    for _ in range(3):
        job.op(name="all_to_all", size=8)
    for rank in range(4):
        out, into = sent.get(rank, 8), received.get(rank, 8)
        job.op(ranks=[rank], name="all_to_all", input_sizes=[[out]], output_sizes=[[into]], done=False)
    return forkpoint.diagnose(job.capture([0, 1, 2]))


def test_a_rank_that_alone_sends_another_amount_is_odd_though_a_member_is_not_seen() -> None:
    assert _answer(_amounts({1: 9}, {})) == (Cause.METADATA_MISMATCH, (1,))


def test_a_rank_that_receives_another_amount_may_have_been_sent_it() -> None:
    assert _answer(_amounts({}, {1: 9})) == (Cause.INCONCLUSIVE, ())


EXPERTS = {"1": ("experts", (0, 1, 2, 3)), "2": ("experts", (4, 5, 6, 7))}
SENT = {0: 1600, 1: 1640, 2: 1580, 3: 390}
"""Elements; they get others, and the sums differ."""
SHORT = "shard 3 exhausted, 1 of 4 rows"


def _routed(sent: dict[int, int], said: dict[int, str]) -> Verdict:
    """Experts of the first group exchange tokens, and only its logs are at hand."""
    job = SmallJob(8, groups=dict(EXPERTS))
    for group, members in (("1", range(4)), ("2", range(4, 8))):
        for rank in members:
            sizes = {"input_sizes": [[sent.get(rank, 1600)]], "output_sizes": [[1601 if group == "1" else 1600]]}
            job.op((rank,), name="all_to_all", group=group, done=group == "2", **sizes)
    lines = {rank: ["step 7", *([said[rank]] if rank in said else [])] for rank in range(4)}
    return forkpoint.diagnose(with_logs(job.capture(), lines))


def test_the_member_that_sends_far_less_and_alone_says_why_is_odd() -> None:
    assert _answer(_routed(SENT, {3: SHORT})) == (Cause.METADATA_MISMATCH, (3,))


@for_each(
    "sent, said",
    [
        (SENT, {}),
        (SENT, {1: SHORT}),
        (SENT, {1: SHORT, 3: SHORT}),
        ({0: 1600, 1: 1200, 2: 1580, 3: 990}, {3: SHORT}),
    ],
)
def test_of_amounts_that_differ_anyway_or_without_its_own_word_nobody_is_odd(
    sent: dict[int, int], said: dict[int, str]
) -> None:
    assert _answer(_routed(sent, said)) == (Cause.METADATA_MISMATCH, ())


# ---------------------------------------------------------------------------------------------------------------------
# What a rank said last, where two sides are seen and others are not.

LEAVES = "no improvement for 3 epochs, leaving the training loop"


def _two_of_four(last: dict[int, tuple[str, ...]], notices: Iterable[int]) -> Verdict:
    """Ranks 2 and 3 make different calls, and nothing is known of the calls of ranks 0 and 1."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=40)
    job.op(ranks=[2], line=40, done=False)
    job.op(ranks=[3], name="all_gather", line=66, done=False)
    logs = tuple((f"log_rank_{rank}.txt", rank) for rank in range(4))
    events = tuple(LogEvent(LogKind.NOTICE, f"log_rank_{rank}.txt", 9, rank, LEAVES) for rank in notices)
    ends = {file: Ending(last.get(rank, ("epoch 9",))) for file, rank in logs}
    capture = job.capture(events=events, logs=logs, ranks=[2, 3])
    return forkpoint.diagnose(replace(capture, log_ends=ends))


def test_of_two_sides_the_rank_that_said_last_that_it_leaves_is_named() -> None:
    assert _answer(_two_of_four({3: ("epoch 9", LEAVES)}, [3])) == (Cause.DIVERGENT_PATH, (3,))


def test_nobody_is_named_where_it_went_on_after_that_or_others_said_so_too() -> None:
    assert _two_of_four({3: (LEAVES, "epoch 10")}, [3]).suspects == ()
    assert _two_of_four({2: (LEAVES,), 3: (LEAVES,)}, [2, 3]).suspects == ()
    assert _two_of_four({1: (LEAVES,)}, [1]).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Arguments that change now and then fit any shift.


def test_another_dtype_now_and_then_is_no_call_too_many() -> None:
    job = SmallJob(4)
    for step in range(60):
        odd = step >= 20 and step % 10 == 0
        job.op([0, 2, 3] if odd else None)
        if odd:
            job.op([1], input_dtypes=["Int"], output_dtypes=["Int"])

    assert _answer(forkpoint.diagnose(job.capture())) == (Cause.METADATA_MISMATCH, (1,))


def test_a_rank_that_is_one_call_off_at_one_line_skipped_it() -> None:
    """Sizes of a loop over parameters: both sides make the same calls."""
    job, sizes = SmallJob(4), [4, 8, 16, 32]
    for step in range(10):
        for at, size in enumerate(sizes):
            job.op([0, 2, 3] if (step, at) == (6, 1) else None, size=size)

    assert _answer(forkpoint.diagnose(job.capture())) == (Cause.DIVERGENT_PATH, (1,))


# ---------------------------------------------------------------------------------------------------------------------
# A rank whose dump is lost and whose stack is in a later call than the one in which the others wait.


def _dump_lost(lib: str, line_of_others: int) -> Verdict:
    """Ranks 0, 1 and 3 wait in line 10 by their dumps; rank 2 stands in line 40, and rank 1 in this line. No sizes can differ."""
    job = SmallJob(4, lib=lib)
    job.op(line=10)
    job.op([0, 1, 3], line=10, done=False)
    live = {
        rank: LiveStack(
            rank, f"stacks_{rank}", 1, (Frame("all_reduce", C10D, 3068), Frame("step", "/train/train.py", line), MAIN)
        )
        for rank, line in ((1, line_of_others), (2, 40))
    }
    capture = job.capture([0, 1, 3], events=tuple(_watchdog(r) for r in (0, 1, 3)), stacks=tuple(live.values()))
    seen = frozenset(program_lines(one.stack) for one in live.values())
    return forkpoint.diagnose(replace(capture, source=SourceFacts(fixed_sizes=seen, of_whole_job=seen)))


def test_a_host_that_waits_in_another_call_than_the_others_left_their_path() -> None:
    assert _answer(_dump_lost("nccl", 10)) == (Cause.DIVERGENT_PATH, (2,))


def test_hosts_that_all_ran_ahead_of_their_gpus_stand_in_a_later_call_together() -> None:
    assert _dump_lost("nccl", 40).suspects == ()


def _watchdog(rank: int) -> LogEvent:
    return LogEvent(LogKind.WATCHDOG_TIMEOUT, f"log_{rank}", 3, rank, "Watchdog caught collective operation timeout")


MAIN = Frame("<module>", "/train/train.py", 99)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that are missed and stand in a call that no dump holds.


def _in_unrecorded_call(line: int) -> Verdict:
    """Ranks 1 and 3 wait in line 10, each in a group of two; ranks 0 and 2 have nothing pending and stand in this line."""
    pairs = {"1": ("tp", (0, 1)), "2": ("tp", (2, 3))}
    job = SmallJob(4, groups=pairs)
    for _ in range(3):
        for group in pairs:
            job.op(group=group)
    for group, rank in (("1", 1), ("2", 3)):
        job.op(ranks=[rank], group=group, done=False)
    stack: Stack = (Frame("all_reduce", C10D, 3068), Frame("step", "/train/train.py", line))
    live, logs = (LiveStack(r, f"stacks_{r}", 1, stack) for r in (0, 2)), ((f"log_{r}", r) for r in range(4))
    return forkpoint.diagnose(job.capture(stacks=tuple(live), logs=tuple(logs)))


def test_ranks_in_an_unrecorded_call_of_another_line_made_another_call() -> None:
    verdict = _in_unrecorded_call(76)

    assert verdict.suspects == ()
    assert (verdict.hypotheses[0].cause, verdict.hypotheses[0].sides) == (Cause.DIVERGENT_PATH, ((0, 2), (1, 3)))
    assert "ranks 0 and 2 (at train.py:76) made another call than ranks 1 and 3" in verdict.headline


def test_ranks_in_an_unrecorded_call_of_the_same_line_are_about_to_make_it() -> None:
    assert _in_unrecorded_call(10).hypotheses[0].cause is not Cause.DIVERGENT_PATH


# ---------------------------------------------------------------------------------------------------------------------
# Stacks alone, of a job on GPUs: hosts wait for their GPU, not in a call.

ON_GPU: Stack = (Frame("cudaStreamSynchronize", "libcudart.so.13", 0), Frame("step", "/train/train.py", 26))
ASLEEP: Stack = (Frame("clock_nanosleep", "libc.so.6", 0), Frame("fetch", "/train/data.py", 37))


def _on_gpus(odd: Stack) -> Verdict:
    stacks = tuple(LiveStack(rank, f"stacks_{rank}", 1, odd if rank == 2 else ON_GPU) for rank in range(4))
    return forkpoint.diagnose(replace(SmallJob(4).capture(()), stacks=stacks))


def test_a_rank_at_work_while_the_others_wait_for_their_gpus_is_the_first_reading() -> None:
    first = _on_gpus(ASLEEP).hypotheses[0]

    assert (first.cause, first.suspects) == (Cause.HOST_STALL, (2,))


def test_ranks_that_all_wait_for_their_gpus_accuse_no_host() -> None:
    assert all(h.suspects == () for h in _on_gpus(ON_GPU).hypotheses)


# ---------------------------------------------------------------------------------------------------------------------
# One decision that parts ranks in several groups of one kind.

COLUMNS = {"1": ("dp", (0, 1, 2, 3)), "2": ("dp", (4, 5, 6, 7))}


def _two_columns(
    odd: dict[int, int], *, groups: dict[str, tuple[str, tuple[int, ...]]] = COLUMNS, more: int = 0
) -> SmallJob:
    """In both groups ranks part after three calls: most are at line 20, others at these lines. `more`: calls that only the second
    group has made before.
    """
    job = SmallJob(8, groups=groups)
    for group in groups:
        for _ in range(3 + (more if group == "2" else 0)):
            job.op(group=group, line=10)
    for group, (_, ranks) in groups.items():
        for rank in ranks:
            line = odd.get(rank, 20)
            job.op(ranks=[rank], group=group, name="all_reduce" if line == 20 else "all_gather", line=line, done=False)
    return job


def test_ranks_that_one_decision_parts_in_parallel_groups_are_named_together() -> None:
    assert _answer(forkpoint.diagnose(_two_columns({1: 30, 5: 30}).capture())) == (Cause.DIVERGENT_PATH, (1, 5))


def test_a_group_of_which_dumps_are_missing_learns_from_the_other_who_is_odd() -> None:
    """Of the second group only two are seen, one on each side."""
    capture = _two_columns({1: 30, 5: 30}).capture([0, 1, 2, 3, 5, 6])

    assert _answer(forkpoint.diagnose(capture)) == (Cause.DIVERGENT_PATH, (1, 5))


def test_where_the_odd_call_of_one_group_is_the_usual_one_of_the_other_nobody_is_named() -> None:
    verdict = forkpoint.diagnose(_two_columns({1: 30, 4: 30, 6: 30, 7: 30}).capture())

    assert _answer(verdict) == (Cause.DIVERGENT_PATH, ())


def test_groups_of_another_kind_or_at_another_number_are_not_joined() -> None:
    other_kind = {"1": ("dp", (0, 1, 2, 3)), "2": ("tp", (4, 5, 6, 7))}
    for job in (_two_columns({1: 30, 5: 30}, groups=other_kind), _two_columns({1: 30, 5: 30}, more=1)):
        assert forkpoint.diagnose(job.capture()).suspects != (1, 5)


# ---------------------------------------------------------------------------------------------------------------------
# All wait but the only rank without a dump, which alone said that it leaves.


ASKED = LogKind.DUMP_SIGNAL


def _announced(
    notices: Iterable[int] = (3,),
    *,
    dumps: Iterable[int] = (0, 1, 2),
    last: Iterable[LogKind] = (ASKED,),
    hangs: bool = True,
) -> Verdict:
    """`last`: what rank 3 tells after its notice. `hangs`: the others' watchdogs have told that they wait too long."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=40)
    job.op(ranks=[0, 1, 2], line=40, done=False)
    work = Work("ALLREDUCE", 4, 4, 4, 20_000, 20_010)
    told = [_said(rank, 9, LogKind.NOTICE, LEAVES) for rank in notices]
    told += [_said(rank, 12, LogKind.WATCHDOG_TIMEOUT, "Watchdog caught", work=work) for rank in (0, 1, 2) if hangs]
    told += [_said(3, 14 + n, kind, kind.value) for n, kind in enumerate(last)]
    logs = tuple((f"log_rank_{rank}.txt", rank) for rank in range(4))
    return forkpoint.diagnose(job.capture(dumps, events=tuple(told), logs=logs))


def _said(rank: int, line: int, kind: LogKind, text: str, **more: Any) -> LogEvent:
    return LogEvent(kind, f"log_rank_{rank}.txt", line, rank, text, **more)


DID_NOT_COME = "it did not reach the call in which the others wait"


def test_the_rank_without_a_dump_that_alone_said_it_leaves_took_another_path() -> None:
    verdict = _announced()

    assert _answer(verdict) == (Cause.DIVERGENT_PATH, (3,))
    assert verdict.headline.startswith('Only rank 3 logged "no improvement for 3 epochs')
    assert DID_NOT_COME in verdict.headline


@for_each(
    "changed",
    [{"notices": (2, 3)}, {"notices": (2,)}, {"last": ()}, {"dumps": (0, 1)}, {"dumps": range(4)}, {"hangs": False}],
    ids=[
        "two said so",
        "one that came said so",
        "it may have ended",
        "two dumps are missing",
        "its dump is there",
        "no hang",
    ],
)
def test_a_rank_that_said_it_leaves_is_not_named_for_that_where_it_may_be_another_or_on_its_way(
    changed: dict[str, Any],
) -> None:
    verdict = _announced(**changed)

    assert DID_NOT_COME not in verdict.headline
    assert verdict.suspects == (() if "dumps" not in changed or changed["dumps"] == (0, 1) else verdict.suspects)


def test_a_rank_that_said_it_leaves_and_was_killed_before_the_others_gave_up_is_lost() -> None:
    killed, later = _announced(last=(LogKind.KILLED, ASKED)), _announced(last=(ASKED, LogKind.KILLED))

    assert _answer(killed) == (Cause.RANK_LOST, (3,))
    assert _answer(later) == (Cause.DIVERGENT_PATH, (3,))


# ---------------------------------------------------------------------------------------------------------------------
# A rank with nothing pending, whose partner in messages is held by somebody else.


def _idle_first_stage(partner_is_held: bool, partner_dumped: bool) -> Verdict:
    """Two pipelines of two stages, 0-2 and 1-3. Rank 0 does not come to the all_reduce of the first stages."""
    job = SmallJob(4, groups={"1": ("first", (0, 1)), "2": ("last", (2, 3))})
    for _ in range(4):
        for source, destination in ((0, 2), (1, 3)):
            job.send(source, destination)
            job.recv(destination, source)
        job.op(group="1")
        job.op(group="2")
    job.op([1], group="1", done=False)
    if partner_is_held:
        job.op([2], group="2", done=False)
    return forkpoint.diagnose(job.capture(ranks=(0, 1, 2, 3) if partner_dumped else (0, 1, 3)))


def test_a_rank_with_nothing_pending_does_not_come_because_of_its_host() -> None:
    assert _answer(_idle_first_stage(partner_is_held=False, partner_dumped=True)) == (Cause.HOST_STALL, (0,))


@for_each(("held", "dumped"), [(True, True), (False, False)], ids=["held elsewhere", "without a dump"])
def test_a_rank_whose_partner_in_messages_is_held_or_unknown_is_not_called_stalled(held: bool, dumped: bool) -> None:
    verdict = _idle_first_stage(partner_is_held=held, partner_dumped=dumped)

    assert verdict.cause is not Cause.HOST_STALL
