"""How a rank without a dump left: what it says after a peer's failure follows from that failure."""

from dataclasses import replace as with_parts
from typing import Any

from msgspec.structs import replace

import forkpoint
from forkpoint.evidence.logs import read_log
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob
from texts import torchrun_table

LEFT = 2
WAITING = (0, 1, 3)


def said(kind: LogKind, line: int, text: str, exception: str | None = None) -> LogEvent:
    return LogEvent(kind, f"rank_{LEFT}.log", line, LEFT, text, exception=exception)


RESET = said(
    LogKind.NETWORK, 10, "RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection reset by peer", "RuntimeError"
)
CRASHED = said(LogKind.CRASHED, 20, "terminate called without an active exception")
FAULT = said(LogKind.CRASHED, 20, "Fatal Python error: Segmentation fault")
CUT = said(LogKind.EXCEPTION, 5, "a truncated traceback")
OWN = said(LogKind.EXCEPTION, 5, "ValueError: no such file", "ValueError")
HANDLED = said(LogKind.EXCEPTION, 2, "KeyError: 'crc'", "KeyError")
NOTICE = said(LogKind.NOTICE, 3, "step 6 skipped: bad magic in shard 3")
UNREDUCED = said(LogKind.EXCEPTION, 5, "RuntimeError: Expected to have finished reduction in the prior", "RuntimeError")


def verdict_of(*events: LogEvent) -> Verdict:
    job = SmallJob(4, lib="gloo")
    for _ in range(5):
        job.op()
    job.op(WAITING, done=False)
    logs = tuple((f"rank_{rank}.log", rank) for rank in range(4))
    return forkpoint.diagnose(job.capture(WAITING, events=events, logs=logs))


@for_each(
    ("events", "cause"),
    [
        ((CRASHED,), Cause.RANK_LOST),
        ((OWN, RESET), Cause.RANK_LOST),
        ((OWN, CRASHED), Cause.RANK_LOST),
        ((OWN, replace(OWN, line=9), RESET), Cause.RANK_LOST),
        ((HANDLED, OWN, RESET), Cause.DIVERGENT_PATH),
        ((NOTICE, OWN, RESET), Cause.DIVERGENT_PATH),
        ((UNREDUCED, RESET), Cause.DIVERGENT_PATH),
        ((OWN, FAULT), Cause.RANK_LOST),
    ],
)
def test_a_rank_that_left_by_itself_is_named(events: tuple[LogEvent, ...], cause: Cause) -> None:
    verdict = verdict_of(*events)

    assert (verdict.cause, verdict.suspects) == (cause, (LEFT,))


@for_each("events", [(RESET, CRASHED), (CUT, RESET), (CUT,)])
def test_a_rank_that_left_because_of_a_peer_or_for_reasons_unknown_is_not_named(events: tuple[LogEvent, ...]) -> None:
    assert verdict_of(*events).suspects == ()


# ---------------------------------------------------------------------------------------------------------------------
# Who was killed before anyone else failed, and is not among those for whom others are seen to wait.


def killed(signal: int, *, first: bool = True, dumps: tuple[int, ...] = (0,)) -> Verdict:
    """Pairs: rank 0 waits for rank 1, of which no dump tells whether it waits for somebody. The launcher saw rank 3 killed."""
    job = SmallJob(4, groups={"1": ("tp", (0, 1)), "2": ("tp", (2, 3))})
    for _ in range(3):
        job.op(group="1")
        job.op(group="2")
    job.op([0], group="1", done=False)
    rows = ((3, signal), (1, -15)) if first else ((1, -15), (3, signal))
    table = torchrun_table(rows[0], rows[1], (0, -15), (2, -15))
    capture = job.capture(dumps, logs=tuple((f"rank_{rank}.log", rank) for rank in range(4)))
    return forkpoint.diagnose(with_parts(capture, events=read_log(table.encode(), "torchrun.log", None).events))


def test_a_rank_that_was_killed_first_is_lost_though_others_wait_for_one_without_a_dump() -> None:
    verdict = killed(-9)

    assert (verdict.cause, verdict.suspects) == (Cause.RANK_LOST, (3,))


@for_each(
    "how",
    [{"signal": -15}, {"signal": -9, "first": False}, {"signal": -9, "dumps": (0, 2, 3)}],
    ids=["told to stop", "after another", "its dump is there"],
)
def test_a_rank_that_was_stopped_or_killed_later_or_left_a_dump_is_not_lost_for_that(how: dict[str, Any]) -> None:
    assert 3 not in killed(**how).suspects
