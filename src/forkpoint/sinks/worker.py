"""The process that sends: a `SendTask` as JSON on standard input, `SinkOutcome`s as JSON on standard output.

Each sink has its own thread, so one that hangs does not block the others. When the time is up the process exits, whatever
still runs: no client's clean-up may delay it.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Final

import msgspec

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.services import SINKS
from forkpoint.sinks.sink import Sink, SinkOutcome, deliver, describe_outcome, hide

_LONG: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SendTask:
    sinks: tuple[str, ...]
    notice: Notice
    limit_s: float
    undecided: bool = False
    """Undecided verdicts also go to sinks that wake people or open tickets."""
    tells: bool = False
    """Nobody reads the outcomes: failures are printed on standard error."""


def main() -> None:
    given = json.load(sys.stdin)
    # Clients print anything, even secrets: only our own output passes.
    out, err = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    task = msgspec.convert(given, SendTask)
    outcomes = send_all(task, os.environ)
    if task.tells:
        tell(outcomes, err)
    else:
        out.write(json.dumps(msgspec.to_builtins(outcomes)))
    out.flush()
    err.flush()
    os._exit(0)


def tell(outcomes: list[SinkOutcome], err: IO[str]) -> None:
    for outcome in outcomes:
        if outcome.problem:
            err.write(f"forkpoint: {describe_outcome(outcome)}\n")


def send_all(task: SendTask, environ: Mapping[str, str]) -> list[SinkOutcome]:
    """One for each sink, in the given order."""
    by_name = {sink.name: sink for sink in SINKS}
    found: dict[str, SinkOutcome] = {}
    until = time.monotonic() + task.limit_s
    threads = [
        threading.Thread(target=_send, args=(by_name[name], task, environ, found), daemon=True)
        for name in task.sinks
        if name in by_name
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [_outcome(name, by_name, found, task) for name in task.sinks]


def _outcome(name: str, by_name: Mapping[str, Sink], found: Mapping[str, SinkOutcome], task: SendTask) -> SinkOutcome:
    if name not in by_name:
        return SinkOutcome(name, f"no such service; known are {', '.join(by_name)}")
    return found.get(name) or SinkOutcome(name, f"not done after {task.limit_s:g} s, given up")


def _send(sink: Sink, task: SendTask, environ: Mapping[str, str], found: dict[str, SinkOutcome]) -> None:
    why_not = why_skipped(sink, task.notice, undecided=task.undecided)
    found[sink.name] = (
        SinkOutcome(sink.name, skipped=why_not) if why_not else deliver(sink, task.notice, environ, task.limit_s)
    )


def why_skipped(sink: Sink, notice: Notice, *, undecided: bool) -> str | None:
    """None: it is sent."""
    if notice.is_healthy:
        return "nothing is wrong"
    if sink.acts and not notice.is_decided and not undecided:
        return "the verdict is not decided (--notify-undecided sends it anyway)"
    return None


def render_all(task: SendTask, environ: Mapping[str, str]) -> str:
    """What would be sent, without secrets."""
    by_name = {sink.name: sink for sink in SINKS}
    pieces: list[str] = []
    for sink in (by_name[name] for name in task.sinks):
        why_not = why_skipped(sink, task.notice, undecided=task.undecided)
        text = f"not sent: {why_not}" if why_not else hide(sink, environ, sink.render(task.notice, environ), _LONG)
        pieces.append(f"--- {sink.name}: {sink.says}\n{text}")
    return "\n".join(pieces)


if __name__ == "__main__":
    main()
