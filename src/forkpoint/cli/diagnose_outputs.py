"""The outputs of `forkpoint diagnose` besides the report and --json: files, and the line for log scrapers."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from forkpoint.cli.output_file import check_writable, write_file
from forkpoint.cli.progress import Progress
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict

_STDIN = _STDOUT = "-"
_MARKDOWN = (".md", ".markdown")


def add_output_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the report as one file for a browser, which asks the network for nothing",
    )
    parser.add_argument(
        "--md",
        nargs="?",
        const=_STDOUT,
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


def check_outputs(args: Namespace) -> None:
    """Raises UsageError before the work is done, not after it."""
    printed = [option for option in ("json", "md", "sarif") if getattr(args, option) in (True, _STDOUT)]
    if len(printed) > 1:
        raise UsageError(f"only one of --{', --'.join(printed)} can be printed; give the others a file")
    for option in ("html", "perfetto"):
        if getattr(args, option) == _STDOUT:
            raise UsageError(f"--{option} writes a file; name one")
    for option in ("html", "md", "sarif", "perfetto"):
        path = getattr(args, option)
        if path not in (None, _STDOUT):
            check_writable(f"--{option}", path)


def print_instead(verdict: "Verdict", args: Namespace) -> bool:
    """Whether an output went to standard output in place of the report."""
    if args.md == _STDOUT:
        print(_markdown(verdict), end="")
    elif args.sarif == _STDOUT:
        print(_sarif(verdict))
    return _STDOUT in (args.md, args.sarif)


def write_outputs(paths: Sequence[str], capture: "Capture", verdict: "Verdict", args: Namespace) -> None:
    """Each file, whatever becomes of the others. Raises UsageError at the end."""
    failed: list[str] = []
    if args.html is not None:
        failed += _written(args.html, [_html(verdict)], args)
    if args.md not in (None, _STDOUT):
        failed += _written(args.md, [_markdown(verdict)], args)
    if args.sarif not in (None, _STDOUT):
        failed += _written(args.sarif, [_sarif(verdict), "\n"], args)
    if args.perfetto is not None:
        with Progress(sys.stderr, quiet=args.quiet) as progress:
            failed += _written(args.perfetto, _perfetto(paths, capture, verdict, progress), args)
        if not args.quiet:
            _print_unread(capture)
    if failed:
        raise UsageError("; ".join(failed))


def print_verdict_line(verdict: "Verdict", args: Namespace) -> None:
    """Last, and on a line of its own: what scrapers of logs look for. --quiet does not silence it."""
    from forkpoint.report.verdict_line import render_line

    sys.stdout.flush()
    if args.verdict_line:
        print(render_line(verdict), file=sys.stderr)


def _written(path: str, pieces: Iterable[str], args: Namespace) -> list[str]:
    """Why it could not be written, if so."""
    try:
        write_file(path, pieces)
    except UsageError as error:
        return [str(error)]
    if not args.quiet:
        print(f"forkpoint: written: {escape(path)}", file=sys.stderr)
    return []


def _html(verdict: "Verdict") -> str:
    from forkpoint.report.html import render_html

    return render_html(verdict)


def _markdown(verdict: "Verdict") -> str:
    from forkpoint.report.markdown import render_markdown

    return render_markdown(verdict)


def _sarif(verdict: "Verdict") -> str:
    from forkpoint.report.sarif import render_sarif

    return render_sarif(verdict)


def _perfetto(paths: Sequence[str], capture: "Capture", verdict: "Verdict", progress: Progress) -> Iterable[str]:
    from forkpoint.export.perfetto import export_perfetto
    from forkpoint.ingest.again import read_dumps_again

    return export_perfetto(capture, verdict, read_dumps_again(paths, capture, progress))


def _print_unread(capture: "Capture") -> None:
    """What came through a pipe is gone: the trace is without it."""
    from forkpoint.model.ranks import name_ranks

    piped = [trace.rank for trace in capture.traces if trace.file == _STDIN]
    if piped:
        print(f"forkpoint: {name_ranks(piped)}: not in the trace, save the dump to a file first", file=sys.stderr)


def _markdown_file(path: str) -> str:
    """The file may be left out, so what follows could as well be evidence: that must not be overwritten."""
    if path != _STDOUT and PurePath(path).suffix not in _MARKDOWN:
        raise ArgumentTypeError(f"{path} does not end in .md; to print Markdown, put --md behind the paths")
    return path
