"""`forkpoint diagnose`: dumps, logs and stacks in, one verdict out."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from forkpoint.cli.cluster import add_cluster_arguments, check_cluster_arguments, cluster_run
from forkpoint.cli.destinations import (
    Telling,
    add_keeping_arguments,
    add_notify_arguments,
    keep_verdict,
    make_notice,
    notify_settings,
    print_seen,
    say_outcomes,
)
from forkpoint.cli.options import (
    Command,
    add_found_source_argument,
    add_links_argument,
    add_width_argument,
    existing_path,
    whole_number,
)
from forkpoint.cli.output import (
    STDOUT,
    Progress,
    check_outputs,
    exit_code,
    import_numpy,
    print_sentence,
    print_verdict,
    say,
    say_broken,
    say_problems,
    write_file,
)
from forkpoint.errors import UsageError
from forkpoint.parts import Parts
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.evidence import Choice
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict
    from forkpoint.report.perfetto import DumpsAgain
    from forkpoint.sinks.notice import Notice

_DESCRIPTION = """\
Read flight recorder dumps, logs and stacks of a job that hung or failed, find
the earliest point where its ranks diverged, and say which ranks left, why, and
what to do.

PATH is a file, a folder or - for standard input, in any mixture. The type of a
file and its rank are detected from its content and its name. Nothing in it is
executed.

exit codes:
  0  healthy
  1  something found
  2  wrong usage
  3  nothing could be read
  4  inconclusive: the evidence does not decide, and the report says what would
"""

_MARKDOWN = (".md", ".markdown")


def run(args: Namespace) -> int:
    if args.source and args.no_source:
        raise UsageError("--source and --no-source exclude each other: give one of them")
    check_cluster_arguments(args)
    notify_settings(args)
    if not args.cluster:
        return _diagnose([*args.paths, *args.use], args)
    with cluster_run(args) as nodes:
        return _diagnose([nodes.path], args, finish=nodes.finish)


def _diagnose(
    paths: Sequence[str], args: Namespace, finish: "Callable[[Capture, Verdict], Verdict] | None" = None
) -> int:
    import_numpy()
    from forkpoint.evidence import Choice

    choice = Choice(frozenset(args.use), everything=args.all, attempt=args.attempt)
    verdict = diagnose_paths(
        paths,
        args,
        args.source,
        choice=choice,
        look=not args.no_source,
        follow_links=args.follow_links,
        in_process=args.in_process,
        finish=finish,
        told_by="diagnose",
    )
    return exit_code(verdict)


def diagnose_paths(  # noqa: PLR0913 - one per option
    paths: Sequence[str],
    args: Namespace,
    source: Sequence[str] = (),
    *,
    choice: "Choice | None" = None,
    look: bool = False,
    follow_links: bool = False,
    in_process: bool = False,
    finish: "Callable[[Capture, Verdict], Verdict] | None" = None,
    told_by: str | None = None,
) -> "Verdict":
    """Read, diagnose, print and write, as the output options say. `finish` may still change the verdict.

    `told_by`: the command; its incidents go to the store and the services in `args`. None: it has no such options.
    `look`: if no `source` is given, use source on this machine that matches the stacks.
    """
    since_s = sum(os.times()[:4])
    import_numpy()
    from forkpoint.evidence import ADMIT_BY_PROOF, read

    _check_outputs(args)
    telling = Telling.of(args) if told_by else Telling(None)
    with Progress(sys.stderr, quiet=args.quiet, in_bytes=True) as progress:
        watched = progress if progress.is_on else None  # counting bytes costs time, too
        capture = read(paths, watched, choice or ADMIT_BY_PROOF, follow_links=follow_links, in_process=in_process)
        from forkpoint.pipeline import diagnose

        parts = Parts()
        looks = look and not source
        found = parts.run("finding the source", lambda: _look_for_source(capture, paths), ()) if looks else ()
        verdict = diagnose(capture, source or found, picture=bool(args.html), embed_source=args.embed_source)
        verdict = finish(capture, verdict) if finish else verdict
    if not args.quiet:
        say_problems(capture.problems)
    if found and not args.quiet:
        say(f"source: {', '.join(found)} (its lines match the recorded frames; --no-source turns this off)")
    seen = parts.run("keeping it", lambda: keep_verdict(args, capture, verdict, source), ()) if told_by else ()
    told = _Told(paths, capture, verdict, since_s, seen)
    if telling.is_on:
        parts.run("telling others", lambda: telling.begin(_notice(told, args, told_by or "")), None)
    try:
        _write_outputs(told, args, parts)
    finally:  # print the answer even if a file cannot be written
        if not parts.run("the report", lambda: _print(told, args), otherwise=False):
            print(f"{verdict.cause}: {escape(verdict.headline)}")
        say_outcomes(telling.wait(), quiet=args.quiet)
        _print_verdict_line(verdict, args)
        if broken := (*verdict.internal, *parts.broken):
            say_broken(broken)
    return verdict


def _notice(told: "_Told", args: Namespace, told_by: str) -> "Notice":
    read = ", ".join(str(Path(path).absolute()) if Path(path).exists() else path for path in told.paths[:3])
    is_kept = told_by != "attach" or args.keep  # else the folder is removed at the end
    return make_notice(
        told.verdict,
        told.capture,
        told.seen,
        told_by=told_by,
        job=args.job_name,
        evidence=read if is_kept else None,
        embed_source=args.embed_source,
    )


def _look_for_source(capture: "Capture", paths: Sequence[str]) -> tuple[str, ...]:
    from forkpoint.source.nearby import find_source

    stacks = [*capture.tables.stacks.values(), *(s.stack for s in capture.stacks), *(e.stack for e in capture.events)]
    return find_source([stack for stack in stacks if stack], [path for path in paths if Path(path).exists()])


def _print(told: "_Told", args: Namespace) -> bool:
    """The report, or another output in its place."""
    instead = next((option for option in ("md", "sarif") if getattr(args, option) == STDOUT), None)
    if instead:
        print("".join(_rendered(told, args, instead)), end="")
    elif args.quiet and not args.json:
        print_sentence(told.verdict)
    else:
        print_verdict(told.verdict, as_json=args.json, width=args.width, verbose=args.verbose)
        if not args.json:
            print_seen(told.seen)
    return True


def _check_outputs(args: Namespace) -> None:
    """Raises UsageError early, before the work."""
    printed = [option for option in ("json", "md", "sarif") if getattr(args, option) in (True, STDOUT)]
    if len(printed) > 1:
        raise UsageError(f"only one of --{', --'.join(printed)} can be printed; give the others a file")
    for option in ("html", "share", "perfetto"):
        if getattr(args, option) == STDOUT:
            raise UsageError(f"--{option} writes a file; name one")
    check_outputs(args, "html", "share", "md", "sarif", "perfetto")


class _Told(NamedTuple):
    """The input of all outputs."""

    paths: Sequence[str]
    capture: "Capture"
    verdict: "Verdict"
    since_s: float
    """CPU time when it began."""
    seen: Sequence[str]
    """Lines about earlier incidents at the same fork."""


def _rendered(told: _Told, args: Namespace, option: str) -> Iterable[str]:
    """The output of `--html`, `--share`, `--md` or `--sarif`, in pieces."""
    if option == "html":
        from forkpoint.report.page import render_html

        return [render_html(told.verdict, seen=told.seen)]
    if option == "share":
        from forkpoint.report.fork_svg import render_share

        return [render_share(told.verdict)]
    if option == "md":
        from forkpoint.report.markdown import render_markdown, render_seen

        return [render_markdown(told.verdict, embed_source=args.embed_source), render_seen(told.seen)]
    from forkpoint.report.sarif import render_sarif

    return [render_sarif(told.verdict), "\n"]


def _write_outputs(told: _Told, args: Namespace, parts: Parts) -> None:
    """Writes every file even if another one fails. Raises UsageError at the end."""
    failed: list[str] = []

    def write(path: str, pieces: Callable[[], Iterable[str]]) -> None:
        failed.extend(parts.run(f"the output {path}", lambda: _written(path, pieces(), args), []))

    for option in ("html", "share", "md", "sarif"):
        path = getattr(args, option)
        if path not in (None, STDOUT):
            write(path, partial(_rendered, told, args, option))
    if args.perfetto is not None:
        from forkpoint.report.perfetto import export_perfetto

        with Progress(sys.stderr, quiet=args.quiet) as progress:
            again = _dumps_again(told, args, progress)
            write(args.perfetto, lambda: export_perfetto(told.capture, told.verdict, again))
        if not args.quiet:
            _print_unread(told.capture, again.left_out)
    if failed:
        raise UsageError("; ".join(failed))


def _print_verdict_line(verdict: "Verdict", args: Namespace) -> None:
    """The last line, for log scrapers. Also with --quiet."""
    from forkpoint.report.verdict_line import render_line

    sys.stdout.flush()
    if args.verdict_line:
        print(render_line(verdict), file=sys.stderr)


def _written(path: str, pieces: Iterable[str], args: Namespace) -> list[str]:
    """Writes a file. Returns the problem, if any."""
    try:
        write_file(path, pieces)
    except UsageError as error:
        return [str(error)]
    if not args.quiet:
        say(f"written: {path}")
    return []


def _dumps_again(told: _Told, args: Namespace, progress: Progress) -> "DumpsAgain":
    from forkpoint.report.perfetto import DumpsAgain

    trusted = bool(getattr(args, "in_process", False))
    follow_links = bool(getattr(args, "follow_links", False))
    return DumpsAgain(
        told.paths, told.capture, progress, follow_links=follow_links, limited=not trusted, since_s=told.since_s
    )


def _print_unread(capture: "Capture", left_out: Sequence[int]) -> None:
    """Dumps from a pipe cannot be read again, so the trace lacks them; nor are those that would take too long."""
    from forkpoint.evidence.files import STDIN
    from forkpoint.model.world import name_ranks

    piped = [trace.rank for trace in capture.traces if trace.file == STDIN]
    if piped:
        say(f"{name_ranks(piped)}: not in the trace; save the dump to a file first")
    if left_out:
        say(
            f"{name_ranks(left_out)}: not in the trace: too large to read again. Use --in-process if you trust the dumps"
        )


def _markdown_file(path: str) -> str:
    """--md works without a file, so the word after it could be evidence, which must not be overwritten."""
    if path != STDOUT and PurePath(path).suffix not in _MARKDOWN:
        raise ArgumentTypeError(f"{path} does not end in .md; to print Markdown, put --md after the paths")
    return path


def add_output_arguments(parser: ArgumentParser) -> None:
    """Options of every command that prints a verdict."""
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON (schema forkpoint.verdict/1)")
    add_width_argument(parser)
    told = parser.add_mutually_exclusive_group()
    told.add_argument(
        "-v", "--verbose", action="store_true", help="print everything: every frame, patch, moment and note"
    )
    told.add_argument(
        "-q", "--quiet", action="store_true", help="print one sentence, no progress or remarks; the VERDICT line stays"
    )
    _add_output_files(parser)
    parser.add_argument(
        "--embed-source",
        action=BooleanOptionalAction,
        default=True,
        help="include source lines and patches in --html and --md; --no-embed-source for files that you send away",
    )


def _add_output_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the report as one file for a browser; it needs no network",
    )
    parser.add_argument(
        "--share", metavar="FILE.svg", help="also write an image of 1200 by 630 to share: the sentence and the lanes"
    )
    parser.add_argument(
        "--md",
        nargs="?",
        const=STDOUT,
        type=_markdown_file,
        metavar="FILE.md",
        help="also write Markdown for tickets and chat; without a file, or with -, print it instead",
    )
    parser.add_argument(
        "--sarif", metavar="FILE", help="also write the places in source as SARIF 2.1.0; - prints it instead"
    )
    parser.add_argument(
        "--perfetto", metavar="FILE", help="also write all recorded calls as a trace for ui.perfetto.dev"
    )
    parser.add_argument(
        "--no-verdict-line", dest="verdict_line", action="store_false", help="no VERDICT line on standard error"
    )


def _add_choice_arguments(parser: ArgumentParser) -> None:
    """Options for which files to judge together."""
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        type=existing_path,
        metavar="FILE",
        help="judge this file although it was set aside as another run's (repeatable)",
    )
    parser.add_argument("--all", action="store_true", help="set no files aside, except second dumps of a rank")
    parser.add_argument(
        "--attempt",
        type=whole_number(0),
        metavar="N",
        help="the attempt of a restarted job to judge, from 0 (default: the first that failed)",
    )


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="file, folder, address (s3://...), or - for standard input"
    )
    add_found_source_argument(parser)
    add_links_argument(parser)
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="read files in this process, without the limits of a child process: for large files that you trust",
    )
    _add_choice_arguments(parser)
    add_output_arguments(parser)
    add_keeping_arguments(parser)
    add_notify_arguments(parser)
    add_cluster_arguments(parser)


COMMAND = Command(
    "diagnose", "find where ranks stopped agreeing, from dumps, logs and stacks", _DESCRIPTION, _add_arguments, run
)
