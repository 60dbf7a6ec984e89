"""`forkpoint rehearse`: runs the user's own job with one rank disturbed in each of the usual ways."""

import os
import signal
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.options import (
    Command,
    add_quiet_argument,
    command_after_dashes,
    count,
    did_you_mean,
    minutes,
    split_names,
    whole_number,
)
from forkpoint.cli.output import Progress, check_outputs, say, terminal_width, write_file
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.rehearse.model import Rehearsal, TrialResult
    from forkpoint.rehearse.rehearsal import RehearsalSettings
    from forkpoint.rehearse.run import UserProgram

_DESCRIPTION = """\
Run your own training script for a minute on a few ranks of this machine, and
disturb one rank in each of the usual ways: one batch fewer, a NaN loss, a caught
exception, a missing file, a clock that is ahead. If all ranks react the same
way, the code is safe. If they diverge, the guard sees it in seconds, and the
report names the line, a probe and a fix.

  forkpoint rehearse -- torchrun train.py --steps 20

The script is not changed. It runs in copies of the current folder, which are
removed; keep the run short with the script's own options. Its interpreter must
have torch and forkpoint.

exit codes:
  0  all ranks reacted the same way in all trials
  1  ranks diverged in at least one trial
  2  wrong usage
  3  the job does not run, or hangs, before anything is disturbed
  4  --fake: the script cannot run this way
"""

_PLAN = "plan.json"
_CANNOT = 4
_DEFAULT_OUT = "forkpoint-rehearsal"


def run(args: Namespace) -> int:
    if args.list:
        return _list_kinds()
    command = command_after_dashes(args)
    check_outputs(args, "html", "junit")
    if args.fake != (args.world is not None):
        raise UsageError("--fake and --world go together: --world 512 --fake")
    from forkpoint.live.run.job import handling
    from forkpoint.rehearse.rehearsal import rehearse
    from forkpoint.rehearse.run import plan_program

    settings = _settings(args, command)
    program = plan_program(command, args.ranks, os.environ, as_is=args.as_is)
    if args.fake:
        return _pretend(program, settings, args)
    # A signal acts like Ctrl-C: it ends everything that was started.
    with (
        handling((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler),
        Progress(sys.stderr, quiet=args.quiet) as progress,
    ):
        told = rehearse(program, settings, progress, lambda result: _tell(result, quiet=args.quiet))
    _write(told, args)
    return 1 if told.parts else 0


def _pretend(program: "UserProgram", settings: "RehearsalSettings", args: Namespace) -> int:
    """Pretends a large world, of which a few ranks run alone."""
    from forkpoint.rehearse.fake import render_pretended, render_pretended_json
    from forkpoint.rehearse.rehearsal import pretend

    with Progress(sys.stderr, quiet=args.quiet) as progress:
        told = pretend(program, settings, args.world, progress)
    print(render_pretended_json(told) if args.json else render_pretended(told))
    return _CANNOT if told.failed else 1 if told.differences else 0


def _settings(args: Namespace, command: list[str]) -> "RehearsalSettings":
    from forkpoint.rehearse.perturbations import PERTURBATIONS
    from forkpoint.rehearse.rehearsal import RehearsalSettings

    kinds = [perturbation.kind for perturbation in PERTURBATIONS]
    only = split_names(args.only)
    for kind in only:
        if kind not in kinds:
            raise UsageError(f"there is no perturbation {kind}: {did_you_mean(kind, kinds) or ', '.join(kinds)}")
    return RehearsalSettings(
        minutes=args.minutes,
        most_trials=args.trials,
        only=tuple(only),
        ranks=tuple(args.rank) or None,
        seed=args.seed,
        trial=args.trial,
        known=_known(args, command) if args.trial is not None else None,
        warm=not args.cold,
        cpu=args.cpu,
        verify=args.verify_fix,
        keep=args.out / "evidence",
    )


def _known(args: Namespace, command: list[str]) -> "Rehearsal":
    """The earlier rehearsal that has the trial to repeat."""
    from forkpoint.rehearse.model import Rehearsal, read_value

    file = args.out / _PLAN
    known = read_value(file, Rehearsal)
    if known is None:
        raise UsageError(f"--trial repeats a trial of an earlier rehearsal, but {file} has none: run without it first")
    if list(known.command) != command:
        raise UsageError(
            f"{file} is for another command ({' '.join(known.command)}): give --out, or run without --trial"
        )
    if args.trial > len(known.plan):
        raise UsageError(f"{file} has {len(known.plan)} trials")
    return known


def _tell(result: "TrialResult", *, quiet: bool) -> None:
    if not quiet:
        say(f"{result.outcome}: trial {result.trial.number}, {result.trial.name} ({result.seconds:.1f} s)")


def _write(told: "Rehearsal", args: Namespace) -> None:
    from forkpoint.rehearse.model import write_value
    from forkpoint.rehearse.render import render_json, render_text

    args.out.mkdir(parents=True, exist_ok=True)
    if args.trial is None:
        write_value(args.out / _PLAN, told)
    write_file(str(args.out / "rehearsal.json"), [render_json(told), "\n"])
    if args.html is not None:
        from forkpoint.rehearse.render import render_page, write_reports

        reports = write_reports(told, Path(args.html).parent)
        write_file(args.html, [render_page(told, reports)])
    if args.junit is not None:
        from forkpoint.rehearse.render import render_junit

        write_file(args.junit, [render_junit(told), "\n"])
    print(render_json(told) if args.json else render_text(told, terminal_width()))


def _list_kinds() -> int:
    from inspect import getdoc

    from forkpoint.rehearse.perturbations import PERTURBATIONS

    for perturbation in PERTURBATIONS:
        print(f"{perturbation.kind}: {getdoc(perturbation)}\n")
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=whole_number(2, 64), metavar="N", help="ranks to start (default: the command's own, else 4)"
    )
    parser.add_argument("--minutes", type=minutes, default=5.0, metavar="M", help="stop after M minutes (default: 5)")
    parser.add_argument(
        "--trials", type=count, metavar="N", help="at most N trials (default: as many as fit in the time)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND", help="only these perturbations; --list names them"
    )
    parser.add_argument(
        "--rank",
        action="append",
        default=[],
        type=whole_number(0),
        metavar="N",
        help="disturb this rank (repeatable; default: first, middle, last, and one of every role)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="random seed for when ranks are disturbed (default: 0)",
    )
    parser.add_argument(
        "--trial", type=count, metavar="N", help="repeat trial N of the rehearsal in --out, and nothing else"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(_DEFAULT_OUT),
        metavar="DIR",
        help=f"plan, results and evidence (default: {_DEFAULT_OUT})",
    )
    _add_ways(parser)
    parser.add_argument("--html", metavar="FILE", help="write a page, and one for each incident next to it")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML, for CI")
    parser.add_argument("--json", action="store_true", help="print JSON (schema forkpoint.rehearsal/1)")
    add_quiet_argument(parser)
    parser.add_argument(
        "command", nargs=REMAINDER, metavar="-- COMMAND", help="torchrun or python with your script and its options"
    )


def _add_ways(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--cpu", action="store_true", help="hide the GPUs and use gloo, whatever backend the script asks for"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="start every rank as a new process; by default torch is imported once and ranks are forked",
    )
    parser.add_argument(
        "--as-is", action="store_true", help="run the command as it is, even if it looks like a script of one rank"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="say what each perturbation does, where it comes from and what a healthy program does",
    )
    parser.add_argument(
        "--verify-fix",
        action="store_true",
        help="repeat each trial in which ranks diverge, with the proposed patch applied to a copy",
    )
    parser.add_argument(
        "--world", type=whole_number(2, 1_000_000), metavar="N", help="with --fake: pretend a job of N ranks"
    )
    parser.add_argument(
        "--fake",
        action="store_true",
        help="run a few ranks of --world alone, with torch's fake process group, and compare what they would call",
    )


COMMAND = Command(
    "rehearse", "run your job with one rank disturbed in each of the usual ways", _DESCRIPTION, _add_arguments, run
)
