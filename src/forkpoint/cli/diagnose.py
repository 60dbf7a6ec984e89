"""`forkpoint diagnose`: dumps, logs and stacks in, one verdict out."""

import os
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.cluster_options import add_cluster_arguments, check_cluster_arguments, cluster_run
from forkpoint.cli.command import Command
from forkpoint.cli.diagnose_outputs import (
    add_output_files,
    check_outputs,
    print_instead,
    print_verdict_line,
    write_outputs,
)
from forkpoint.cli.one_thread import import_numpy
from forkpoint.cli.progress import Progress
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.ingest import Choice
    from forkpoint.model.capture import Capture, Problem
    from forkpoint.model.verdict import Verdict

_DESCRIPTION = """\
Read flight recorder dumps, logs and stacks of a job that hung or failed, find
the earliest point where its ranks stopped agreeing, and say who left, why, and
what to do.

PATH is a file, a folder or - for standard input, in any mixture. What a file
is, and which rank wrote it, is found from its content and its name. Nothing in
it is executed.

exit codes:
  0  healthy
  1  something found
  2  wrong usage
  3  nothing could be read
  4  inconclusive: the evidence does not decide, and the report says what would
"""

_MIN_WIDTH = 40
_COMFORTABLE_WIDTH = 120
_MAX_PROBLEMS = 10


def run(args: Namespace) -> int:
    if args.embed_source and not (args.html and args.source):
        raise UsageError("--embed-source puts lines of --source DIR into --html FILE: give both")
    check_cluster_arguments(args)
    if not args.cluster:
        return _diagnose([*args.paths, *args.use], args)
    with cluster_run(args) as nodes:
        return _diagnose([nodes.path], args, finish=nodes.finish)


def _diagnose(
    paths: Sequence[str], args: Namespace, finish: "Callable[[Capture, Verdict], Verdict] | None" = None
) -> int:
    import_numpy()
    from forkpoint.ingest import Choice

    choice = Choice(frozenset(args.use), everything=args.all, attempt=args.attempt)
    verdict = diagnose_paths(paths, args, args.source, choice=choice, embed_source=args.embed_source, finish=finish)
    return exit_code(verdict)


def diagnose_paths(
    paths: Sequence[str],
    args: Namespace,
    source: Sequence[str] = (),
    *,
    choice: "Choice | None" = None,
    embed_source: bool = False,
    finish: "Callable[[Capture, Verdict], Verdict] | None" = None,
) -> "Verdict":
    """Read, diagnose, print and write, as the output options say. `finish` has the last word on the verdict."""
    import_numpy()
    from forkpoint.ingest import ADMIT_BY_PROOF, read
    from forkpoint.pipeline import diagnose

    check_outputs(args)
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        capture = read(paths, progress, choice or ADMIT_BY_PROOF)
        verdict = diagnose(capture, source, picture=bool(args.html), embed_source=embed_source)
        verdict = finish(capture, verdict) if finish else verdict
    if not args.quiet:
        _print_problems(capture.problems)
    try:
        write_outputs(paths, capture, verdict, args)
    finally:  # a file that cannot be written does not take the answer away
        if not print_instead(verdict, args):
            print_verdict(verdict, as_json=args.json, width=args.width)
        print_verdict_line(verdict, args)
    return verdict


def exit_code(verdict: "Verdict") -> int:
    return {"healthy": 0, "inconclusive": 4}.get(verdict.cause, 1)


def print_verdict(verdict: "Verdict", *, as_json: bool, width: int | None) -> None:
    if as_json:
        from forkpoint.report.json_report import render_json

        print(render_json(verdict))
        return
    from rich.console import Console

    from forkpoint.report.text import render_text

    width = width or terminal_width()
    # rich itself keeps bold and dim under NO_COLOR; whoever sets it wants plain text.
    console = Console(width=width, color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.print(render_text(verdict, width), soft_wrap=True, highlight=False)


def terminal_width() -> int:
    return max(_MIN_WIDTH, min(shutil.get_terminal_size().columns, _COMFORTABLE_WIDTH))


def add_output_arguments(parser: ArgumentParser) -> None:
    """Options of every command that prints a verdict."""
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON (schema forkpoint.verdict/1)")
    add_width_argument(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="no progress and no remarks on standard error; the VERDICT line stays"
    )
    add_output_files(parser)


def add_choice_arguments(parser: ArgumentParser) -> None:
    """Which files are judged together, where that is not plain."""
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        type=_existing,
        metavar="FILE",
        help="judge this file although it was set aside as another run's (repeatable)",
    )
    parser.add_argument("--all", action="store_true", help="set nothing aside but second dumps of one rank")
    parser.add_argument(
        "--attempt",
        type=_attempt,
        metavar="N",
        help="of a job that was restarted, the attempt to judge, from 0 (default: the first that failed)",
    )


def add_width_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--width",
        type=_width,
        metavar="N",
        help=f"columns of the report (at least {_MIN_WIDTH}; default: the terminal's)",
    )


def add_source_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        type=_existing,
        metavar="DIR",
        help="the program that ran, as it was then: shows the branch that let ranks part (repeatable; read, not run)",
    )


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="file, folder, address (s3://...), or - for standard input"
    )
    add_source_argument(parser)
    parser.add_argument(
        "--embed-source",
        action="store_true",
        help="put lines of --source into the --html file, around sites and stacks and as patches; else it holds none",
    )
    add_choice_arguments(parser)
    add_output_arguments(parser)
    add_cluster_arguments(parser)


def _existing(path: str) -> str:
    if not Path(path).exists():
        raise ArgumentTypeError(f"{path} does not exist")
    return path


def _attempt(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError("must be a number, from 0")
    return int(text)


def _width(text: str) -> int:
    if not text.isdecimal() or int(text) < _MIN_WIDTH:
        raise ArgumentTypeError(f"must be a number, at least {_MIN_WIDTH}")
    return int(text)


def _print_problems(problems: "Sequence[Problem]") -> None:
    for problem in problems[:_MAX_PROBLEMS]:
        print(f"forkpoint: {escape(problem.file)}: {escape(problem.text)}", file=sys.stderr)
    if len(problems) > _MAX_PROBLEMS:
        print(f"forkpoint: and {len(problems) - _MAX_PROBLEMS} more files with problems", file=sys.stderr)


COMMAND = Command(
    name="diagnose",
    help="find where ranks stopped agreeing, from dumps, logs and stacks",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
