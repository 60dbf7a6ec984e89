"""How a rank without a dump left: what it says after a peer's failure follows from that failure."""

from msgspec.structs import replace

import forkpoint
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each
from small_jobs import SmallJob

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
