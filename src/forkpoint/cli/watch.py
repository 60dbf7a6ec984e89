"""`forkpoint watch`: watches a running job without touching it."""

import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from forkpoint.cli.destinations import (
    Telling,
    add_keeping_arguments,
    add_notify_arguments,
    keep_verdict,
    make_notice,
    print_seen,
    say_outcomes,
)
from forkpoint.cli.options import Command, add_source_argument, port, rank_count, seconds
from forkpoint.cli.output import exit_code, needing_extra, print_verdict, say
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.live.metrics import WatchMetrics
    from forkpoint.live.watch.look import JobWatch
    from forkpoint.live.watch.rule import Sight, WatchNote
    from forkpoint.live.watch.sources import LiveSource
    from forkpoint.sinks.sink import SinkOutcome

_DESCRIPTION = """\
Look at a running job at intervals, and report when ranks diverge or no longer
move, long before the timeout. The job is not changed, signalled or stopped.
Give at least one source; sources can be combined.

PATH is a log or dump that the job writes, or a folder of them. --debug-server
and --worker ask torch's debug server, --pipe asks through NCCL's dump pipes,
--ras asks NCCL. A rank that is behind once is not an alarm. An alarm needs
mismatched calls, a failure in the logs, or --stall seconds in which no rank
moves; and the same verdict twice in a row. Details: docs/watch.md

exit codes:
  0  ended by Ctrl-C; with --once: the job runs, or nothing shows otherwise
  1  with --once: something found
  2  wrong usage
  3  with --once: nothing could be read
  4  with --once: the job has stopped, and the evidence does not decide why
"""

RAS_ADDRESS = "localhost:28028"
_BLIND = 3


def run(args: Namespace) -> int:
    from tempfile import TemporaryDirectory

    sources = _make_sources(args)
    with ExitStack() as stack:
        spool = args.keep or stack.enter_context(TemporaryDirectory(prefix="forkpoint-watch-"))
        watch = _make_watch(args, sources, spool)
        telling = Telling.of(args)
        stack.callback(lambda: say_outcomes(telling.wait(), quiet=True))  # finish notices that are being sent
        metrics = _make_metrics(args)
        if args.serve is not None:
            _serve(args, spool, stack)
        # systemd and schedulers send SIGTERM; temporary folders must still be removed.
        signal.signal(signal.SIGTERM, _leave)
        try:
            return _run_once(args, watch, telling) if args.once else _run_on(args, watch, telling, metrics)
        except KeyboardInterrupt:  # the normal way to end
            return 0


def _run_once(args: Namespace, watch: "JobWatch", telling: Telling) -> int:
    from dataclasses import replace

    from forkpoint.live.watch.look import look_once
    from forkpoint.live.watch.rule import WatchState

    sight = _tell(look_once(watch, args.every), telling, args)
    sight = replace(sight, notes=(*sight.notes, *_notes(telling.wait())))
    _print_sight(sight, args)
    if sight.state is WatchState.FOUND and sight.verdict:
        return exit_code(sight.verdict)
    return _BLIND if sight.state is WatchState.BLIND else 0


def _run_on(args: Namespace, watch: "JobWatch", telling: Telling, metrics: "WatchMetrics | None") -> NoReturn:
    from rich.console import Console
    from rich.live import Live

    from forkpoint.live.watch.look import draw, looks, what_matters

    console = Console()
    with ExitStack() as stack:
        is_drawn = console.is_terminal and not args.json
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if is_drawn else None
        shown: object = None
        for found in looks(watch, args.every):
            sight = _tell(found, telling, args)
            if metrics:
                metrics.update(sight)
            if live:
                live.update(draw(sight), refresh=True)
            if sight.is_alarm or (not live and what_matters(sight) != shown):
                shown = what_matters(sight)
                _print_sight(sight, args)
    raise AssertionError  # `looks` never ends


def _tell(sight: "Sight", telling: Telling, args: Namespace) -> "Sight":
    """Stores and sends an alarm. Returns the sight with earlier incidents, and with notes on failed notices so far."""
    from dataclasses import replace

    verdict = sight.verdict
    if sight.is_alarm and verdict:
        seen = keep_verdict(args, sight.capture, verdict, args.source) if sight.capture else ()
        sight = replace(sight, seen=seen)
        if telling.is_on:
            evidence = sight.evidence if args.keep else None
            telling.begin(
                make_notice(verdict, sight.capture, seen, told_by="watch", job=args.job_name, evidence=evidence)
            )
    notes = _notes(telling.arrived())
    return replace(sight, notes=(*sight.notes, *notes)) if notes else sight


def _notes(outcomes: "Sequence[SinkOutcome]") -> "tuple[WatchNote, ...]":
    from forkpoint.live.watch.rule import WatchNote
    from forkpoint.sinks.sink import describe_outcome

    failed = [outcome for outcome in outcomes if outcome.problem or outcome.skipped]
    return tuple(WatchNote("notify", describe_outcome(outcome)) for outcome in failed)


def _print_sight(sight: "Sight", args: Namespace) -> None:
    from forkpoint.live.watch.look import render_json_line, render_line

    print(render_json_line(sight) if args.json else render_line(sight), flush=True)
    if sight.is_alarm and sight.verdict and not args.json:
        print_verdict(sight.verdict, as_json=False, width=None)
        print_seen(sight.seen)
        kept = (
            f"forkpoint diagnose --follow-links {sight.evidence}"
            if args.keep
            else "removed at the end; --keep DIR keeps them"
        )
        print(f"files     {escape(kept)}", flush=True)


def _make_sources(args: Namespace) -> "list[LiveSource]":
    from forkpoint.live.watch.sources.paths import Paths
    from forkpoint.live.watch.sources.pipes import POKE_EVERY_S, Pipes

    sources: list[LiveSource] = []
    sources += servers_to_ask(args, dated=args.once, py_spy=args.py_spy)
    if args.pipe:
        sources.append(Pipes(args.pipe, dump_prefixes(args), args.every if args.once else POKE_EVERY_S))
    if missing := [path for path in args.paths if not Path(path).exists()]:
        raise UsageError(f"{missing[0]}: no such file or directory; give an existing folder, whose new files are seen")
    if args.paths:
        sources.append(Paths(args.paths))
    if not sources:
        raise UsageError("give a source: PATH, --debug-server, --worker, --pipe or --ras (see forkpoint watch --help)")
    return sources


def servers_to_ask(args: Namespace, *, dated: bool, py_spy: bool = False) -> "Iterator[LiveSource]":
    """What --debug-server, --worker and --ras name. `forkpoint collect` has them, too."""
    from forkpoint.live.watch.sources.ask import Ras, parse_address
    from forkpoint.live.watch.sources.debug_server import DebugServer, parse_workers

    if args.debug_server and args.worker:
        raise UsageError("--debug-server finds the workers itself: leave out --worker, or give all workers instead")
    if args.debug_server or args.worker:
        frontend = parse_address(args.debug_server) if args.debug_server else None
        yield DebugServer(parse_workers(args.worker), frontend, py_spy=py_spy, dated=dated)
    if args.ras:
        yield Ras(parse_address(args.ras))


def dump_prefixes(args: Namespace) -> tuple[str, ...]:
    """Where --pipe makes ranks write."""
    from forkpoint.live.watch.sources.pipes import usual_prefixes

    return (args.dump_prefix,) if args.dump_prefix else usual_prefixes()


def _make_watch(args: Namespace, sources: "list[LiveSource]", spool: str) -> "JobWatch":
    from forkpoint.live.watch.look import JobWatch, WatchSettings
    from forkpoint.live.watch.sources import Spool

    try:
        kept = Spool(spool)
    except OSError as error:
        raise UsageError(f"--keep {spool}: {error.strerror}; give a writable folder") from error
    return JobWatch(sources, kept, WatchSettings(args.stall, args.world_size, tuple(args.source)))


def _make_metrics(args: Namespace) -> "WatchMetrics | None":
    if args.metrics is None:
        return None
    with needing_extra("--metrics", "watch"):
        from forkpoint.live.metrics import WatchMetrics, serve_metrics
    metrics = WatchMetrics()
    address, wanted = args.metrics
    bound = serve_metrics(metrics, wanted, address)
    say(f"metrics at http://{address}:{bound}/metrics")
    return metrics


def _serve(args: Namespace, spool: str, stack: ExitStack) -> None:
    with needing_extra("--serve", "watch"):
        from forkpoint.live.serve.server import bind, serving
    bound = bind(args.serve)
    stack.enter_context(serving(bound, str(Path(spool) / "found"), args.source))
    say(f"findings will be shown at {bound.url}")


def _leave(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _metrics_place(text: str) -> tuple[str, int]:
    """Where to serve metrics; on 127.0.0.1 unless an address is given."""
    address, colon, number = text.rpartition(":")
    if colon and not address:
        raise ArgumentTypeError("must be PORT or ADDRESS:PORT")
    return address.strip("[]") or "127.0.0.1", port(number)


def _add_arguments(parser: ArgumentParser) -> None:
    _add_sources(parser)
    _add_rule(parser)
    _add_outputs(parser)


def _add_sources(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="log, dump, or folder of them, while they are written")
    parser.add_argument("--debug-server", metavar="HOST:PORT", help="frontend of torch.distributed.debug (port 25999)")
    parser.add_argument(
        "--worker",
        nargs="+",
        default=[],
        metavar="HOST:PORT",
        help="debug servers of the ranks, in the order of ranks or as RANK=HOST:PORT; a path for a socket",
    )
    parser.add_argument(
        "--pipe", metavar="STEM", help="as TORCH_NCCL_DEBUG_INFO_PIPE_FILE: asks through STEM<rank>.pipe"
    )
    parser.add_argument(
        "--dump-prefix", metavar="PREFIX", help="where --pipe makes ranks write, if not where torch does by default"
    )
    parser.add_argument(
        "--ras", nargs="?", const=RAS_ADDRESS, metavar="HOST:PORT", help=f"ask NCCL's RAS (default: {RAS_ADDRESS})"
    )
    parser.add_argument(
        "--py-spy",
        action="store_true",
        help="take stacks with py-spy in the job's container, which stops a process briefly; default: faulthandler",
    )


def _add_rule(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--every", type=seconds, default=5.0, metavar="S", help="seconds between looks (default: 5, see docs/watch.md)"
    )
    parser.add_argument(
        "--stall",
        type=seconds,
        default=300.0,
        metavar="S",
        help="alarm when no rank has moved for S seconds (default: 300, half of NCCL's timeout)",
    )
    parser.add_argument(
        "--world-size",
        type=rank_count,
        metavar="N",
        help="ranks of the job, if no dump says it (gloo): needed to tell the odd rank from the rest",
    )
    parser.add_argument("--once", action="store_true", help="look three times, print, and end: for cron")
    add_source_argument(parser)


def _add_outputs(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a line of JSON per change (schema forkpoint.watch/1)")
    add_keeping_arguments(parser)
    add_notify_arguments(parser)
    parser.add_argument("--keep", metavar="DIR", help="keep the evidence there; by default it is removed at the end")
    parser.add_argument(
        "--serve",
        type=port,
        metavar="PORT",
        help="show findings in a browser, as forkpoint serve does (0: any port)",
    )
    parser.add_argument(
        "--metrics",
        type=_metrics_place,
        metavar="PORT",
        help="Prometheus metrics on 127.0.0.1 (0: any port), or on ADDRESS:PORT, such as 0.0.0.0:9464 in a pod",
    )


COMMAND = Command("watch", "watch a running job, and report when it has gone wrong", _DESCRIPTION, _add_arguments, run)
