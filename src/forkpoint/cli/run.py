"""`forkpoint run`: runs a job with recording on, diagnoses a failure, and decides whether to retry."""

import os
import signal
import sys
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.destinations import (
    Telling,
    add_notify_arguments,
    add_store_argument,
    print_seen,
    say_outcomes,
    store_of,
)
from forkpoint.cli.options import Command, add_source_argument, command_after_dashes, seconds, whole_number
from forkpoint.cli.output import check_outputs, needing_extra, say, terminal_width, write_file

if TYPE_CHECKING:
    from forkpoint.live.children import Decision
    from forkpoint.live.run.attempt import Attempt, RunSettings

_DESCRIPTION = """\
Run torchrun, or any command, with the flight recorder on and one log per rank.
If it fails: wait for the dumps, diagnose them, print the verdict on standard
error and tell by the exit code what to do. Variables and log options that you
have set are kept. Signals are passed on. No process is left running.

  forkpoint run -- torchrun --nproc-per-node 8 train.py

exit codes:
   0  the command succeeded
  93  do not retry: the same code would fail again
  75  a retry may pass
  76  a retry may pass without the nodes that are named
  otherwise the command's own; 128 + the signal if it was killed
"""

_MAX_RETRIES = 1000


def run(args: Namespace) -> int:
    command = command_after_dashes(args)
    check_outputs(args, "json", "prometheus")
    if args.prometheus is not None:
        _check_prometheus()
    telling = Telling.of(args)
    from forkpoint.live.run.job import handling

    # Between attempts and while diagnosing, a signal acts like Ctrl-C: it ends everything that was started.
    with handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        try:
            attempts, decision = _attempt_all(command, args, telling)
            _tell_outcome(attempts, decision, args)
            say_outcomes(telling.wait())
        finally:
            telling.end()
    return decision.code


def _attempt_all(command: Sequence[str], args: Namespace, telling: Telling) -> "tuple[list[Attempt], Decision]":
    import random
    import time

    from forkpoint.live.run.attempt import Retry, attempt_job, next_step
    from forkpoint.live.run.start import run_name

    settings = _settings(args, notifies=telling.is_on)
    name = args.name or run_name(settings.environ)
    attempts: list[Attempt] = []
    while True:
        attempts.append(attempt_job(command, name, len(attempts), settings))
        _print_attempt(attempts[-1])
        _notify(attempts[-1], telling)
        if attempts[-1].decision.code == 0:
            return attempts, attempts[-1].decision
        step = next_step(attempts, args.retries, args.back_off, random.random())  # noqa: S311 no secret, only jitter
        if not isinstance(step, Retry):
            return attempts, step
        say(f"retry {len(attempts)} of {args.retries} starts in {step.wait_s:.0f} s")
        time.sleep(step.wait_s)


def _print_attempt(attempt: "Attempt") -> None:
    """Prints nothing for a job that succeeded and left no processes."""
    if attempt.found:
        print(attempt.found.report, file=sys.stderr)
        print_seen(attempt.found.seen, file=sys.stderr)
        if attempt.found.store_problem:
            say(attempt.found.store_problem)
    if attempt.left:
        say(f"processes {', '.join(map(str, attempt.left))} cannot be ended: see `ps -o pid,stat,wchan:30 PID`")
    if attempt.hung:
        say("no rank made progress, so the job was stopped")
    if attempt.decision.code:
        say(f"evidence: {attempt.folder}   (`forkpoint diagnose` reads it again)")
    if attempt.found:
        print(attempt.found.line, file=sys.stderr, flush=True)


def _notify(attempt: "Attempt", telling: Telling) -> None:
    """Sends in the background; the next attempt does not wait for it."""
    from forkpoint.live.run.attempt import claim_telling

    if attempt.found and attempt.found.notice and claim_telling(attempt):
        telling.begin(attempt.found.notice)


def _tell_outcome(attempts: "Sequence[Attempt]", decision: "Decision", args: Namespace) -> None:
    from forkpoint.live.run.attempt import render_outcome

    if decision.code:
        say(f"exit code {decision.code}: {decision.why}")
    if decision.nodes:
        from forkpoint.live.run.attempt import commands_for

        say(f"nodes to leave out: {', '.join(decision.nodes)}")
        for line in commands_for(decision, os.environ):
            say(f"not run here; an administrator can run: {line}")
    if args.json is not None:
        write_file(args.json, [render_outcome(attempts[-1].folder.parent.name, attempts, decision), "\n"])
    if args.prometheus is not None:
        from forkpoint.live.metrics import render_metrics

        write_file(args.prometheus, [render_metrics(attempts, decision)])


def _settings(args: Namespace, *, notifies: bool) -> "RunSettings":
    from forkpoint.live.run.attempt import RunSettings

    return RunSettings(
        folder=args.folder,
        source=tuple(args.source),
        dumps_s=args.timeout_for_dumps,
        grace_s=args.grace,
        hang_s=args.hang_after,
        keep=args.keep,
        store=store_of(args),
        notifies=notifies,
        width=terminal_width(),
    )


def _check_prometheus() -> None:
    with needing_extra("--prometheus", "watch"):
        import prometheus_client as _  # noqa: F401 - whether it is installed


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("forkpoint-runs"),
        metavar="DIR",
        help="folder for the evidence of all runs, on a disk that outlives the node (default: forkpoint-runs)",
    )
    parser.add_argument(
        "--name",
        type=_name,
        metavar="NAME",
        help="nodes that share --folder and NAME are diagnosed together (default: the Slurm job, else the time)",
    )
    parser.add_argument("--keep", action="store_true", help="also keep the folder of a job that succeeded")
    add_source_argument(parser)
    add_store_argument(parser)
    add_notify_arguments(parser)
    _add_limits(parser)
    parser.add_argument("--json", metavar="FILE", help="write attempts, verdicts and decision (schema forkpoint.run/1)")
    parser.add_argument("--prometheus", metavar="FILE.prom", help="write a file for node_exporter's textfile collector")
    parser.add_argument(
        "command", nargs=REMAINDER, metavar="-- COMMAND", help="torchrun with its options, or any command"
    )


def _add_limits(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--retries",
        type=whole_number(0, _MAX_RETRIES),
        default=0,
        metavar="N",
        help="retry up to N times if that may help; stop if the same cause recurs without progress (default: 0)",
    )
    parser.add_argument(
        "--back-off",
        type=seconds,
        default=5.0,
        metavar="S",
        help="wait before the first retry; doubles each time (default: 5)",
    )
    parser.add_argument(
        "--timeout-for-dumps",
        type=seconds,
        default=30.0,
        metavar="S",
        help="how long to wait for dumps after the end (default: 30)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=15.0,
        metavar="S",
        help="time between the stop signal and SIGKILL (default: 15)",
    )
    parser.add_argument(
        "--hang-after",
        type=seconds,
        metavar="S",
        help="turn the guard on, and end the job when no rank has moved for S seconds (default: wait for the job's own timeout)",
    )


def _name(text: str) -> str:
    if not text or "/" in text or text.startswith("."):
        raise ArgumentTypeError("must be the name of a folder, without /")
    return text


COMMAND = Command(
    "run",
    "run a job with recording on, diagnose a failure, and decide whether to retry",
    _DESCRIPTION,
    _add_arguments,
    run,
)
