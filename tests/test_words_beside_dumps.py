"""Dumps that do not tell who differs, and what logs say beside them: timeouts that vote, refusals that are newer. Each with a near miss."""

from typing import Any

import forkpoint
from forkpoint.model.log import Group, LogEvent, LogKind, Work
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, REFUSED, raised, with_logs


def answer(verdict: Verdict) -> tuple[Cause, tuple[int, ...]]:
    return verdict.cause, verdict.suspects


# ---------------------------------------------------------------------------------------------------------------------
# Members without dumps vote by the call that their timeout names.


def timed_out(rank: int, op: str = "ALLREDUCE", seq: int = 4, numel: int = 4, **more: Any) -> LogEvent:
    work = Work(op, seq, numel, numel, 20_000, 20_010)
    return LogEvent(LogKind.WATCHDOG_TIMEOUT, f"log_{rank}", 9, rank, "Watchdog caught", seq=seq, work=work, **more)


def parted(*events: LogEvent, gathers: int = 9) -> Verdict:
    """Rank 2 reduces 4 numbers and rank 3 gathers 9, both as the 4th call; the dumps of ranks 0 and 1 are lost."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(line=40)
    job.op([2], line=40, done=False)
    job.op([3], "all_gather", size=gathers, line=66, done=False)
    return forkpoint.diagnose(job.capture([2, 3], events=events, logs=tuple((f"log_{r}", r) for r in range(4))))


def test_timeouts_of_members_without_dumps_tell_which_call_is_the_usual_one() -> None:
    assert answer(parted(timed_out(0), timed_out(1))) == (Cause.DIVERGENT_PATH, (3,))
    assert answer(parted(*(timed_out(r, "ALLGATHER", numel=9) for r in (0, 1)))) == (Cause.DIVERGENT_PATH, (2,))


@for_each(
    "said",
    [
        {},
        {"seq": 5},
        {"numel": 8},
        {"op": "BROADCAST"},
        {"seq": 3},
        {"group": Group(None, "tp", 0)},
    ],
    ids=["only one of two", "another number", "another size", "another operation", "a call of both", "another group"],
)
def test_a_timeout_in_a_call_that_is_not_of_just_one_side_does_not_vote(said: dict[str, Any]) -> None:
    events = [timed_out(0), *([timed_out(1, **said)] if said else [])]

    assert parted(*events).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Dumps that are older than the call that gloo refused.

LEAVES = "no improvement for 3 epochs, leaving the training loop"


def refused_later(ends: dict[int, str], *, pending: tuple[int, ...] = (0,), notices: tuple[int, ...] = (2,)) -> Verdict:
    """The dumps were taken when these ranks were in the 4th call, and the others before it. `ends`: of logs."""
    job = SmallJob(4, lib="gloo")
    for _ in range(3):
        job.op()
    job.op(pending, done=False)
    steps = [f"step {n}" for n in range(3)]
    said = {
        r: [*steps, *([LEAVES] if r in notices else []), *ends[r].splitlines()] if r in ends else steps
        for r in range(4)
    }
    return forkpoint.diagnose(with_logs(job.capture(), said))


ENDED = {1: REFUSED, **{r: raised(r, CLOSED) for r in (0, 2, 3)}}
TOLD = f'Only rank 2 logged "{LEAVES}"; then rank 1 got data of another size than it expected'


def test_a_rank_that_alone_said_it_leaves_is_named_beside_dumps_that_are_older_than_the_refusal() -> None:
    verdict = refused_later(ENDED)

    assert answer(verdict) == (Cause.DIVERGENT_PATH, (2,))
    assert verdict.headline.startswith(TOLD)
    assert verdict.findings[0].divergence is None


@for_each(
    "ends, notices",
    [
        ({r: end for r, end in ENDED.items() if r not in (0, 3)}, (2,)),
        ({r: raised(r, CLOSED) for r in range(4)}, (2,)),
        (ENDED, (2, 3)),
    ],
    ids=["the one that waits by its dump may still be there", "nothing was refused", "two said so"],
)
def test_it_is_not_named_for_that_where_the_dumps_may_tell_or_another_said_so(
    ends: dict[int, str], notices: tuple[int, ...]
) -> None:
    verdict = refused_later(ends, notices=notices)

    assert not verdict.headline.startswith(TOLD)
    assert verdict.suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Roots and splits are not recorded: what ranks printed of them.


def split(own: dict[int, str], *, op: str = "all_to_all", hangs: bool = True) -> Verdict:
    """All ranks are in one call, and printed what they were about to send, or this instead."""
    job = SmallJob(4)
    for _ in range(3):
        job.op(name=op)
    job.op(name=op, done=False)
    said = {r: [*own.get(r, "tokens per expert 160").splitlines(), "step 3"] for r in range(4)}
    events = tuple(timed_out(r, op.upper()) for r in range(4) if hangs)
    return forkpoint.diagnose(with_logs(job.capture(events=events), said))


OTHER = {2: "tokens per expert 120"}


@for_each("op, did", [("all_to_all", "split its data differently from"), ("broadcast", "used another root than")])
def test_a_rank_that_alone_printed_another_number_before_a_call_that_hangs_brought_another_argument(
    op: str, did: str
) -> None:
    verdict = split(OTHER, op=op)

    assert answer(verdict) == (Cause.METADATA_MISMATCH, (2,))
    assert verdict.headline.startswith(f"Rank 2 {did} the others in the {op} at train.py:10")


@for_each(
    "own, how",
    [
        (OTHER, {"hangs": False}),
        (OTHER, {"op": "all_reduce"}),
        ({1: "tokens per expert 90", 3: "tokens per expert 80"}, {}),
        ({2: "tokens per expert 160\ncache is cold"}, {}),
    ],
    ids=["dumps taken while the job runs", "a call whose arguments are recorded", "many differ", "a line"],
)
def test_another_number_accuses_nobody_where_nothing_hangs_or_it_is_usual(
    own: dict[int, str], how: dict[str, Any]
) -> None:
    assert split(own, **how).suspects == ()
