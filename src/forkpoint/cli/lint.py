"""`forkpoint lint`: places in source where ranks can diverge."""

import os
import shutil
import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.options import MIN_WIDTH, Command, add_quiet_argument, split_names
from forkpoint.cli.output import STDOUT, Progress, say, write_file
from forkpoint.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    from forkpoint.lint import LintReport, Options
    from forkpoint.lint.edits import FileChanges

_DESCRIPTION = """\
Read Python source and name the places where ranks can diverge: where some issue
a collective that others do not. Nothing in the source is executed.

PATH is a file or a folder. Give the whole repository rather than one file: what
a call does is defined elsewhere. `# forkpoint: ignore[code] reason` on a line
ignores a violation; [tool.forkpoint.lint] in pyproject.toml configures the rest.

exit codes:
  0  nothing found
  1  something found
  2  wrong usage
  3  nothing could be read
"""


def run(args: Namespace) -> int:
    if args.list:
        _print_rules(as_json=args.json)
        return 0
    _check_usage(args)
    options = _options(args)
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        if args.fix or args.diff:
            report = _repair(args, options, progress)
        else:
            from forkpoint.lint.run import lint_paths

            report = lint_paths(args.paths, options, progress, use_cache=args.cache)
    if not report.files:
        first = f": {report.notes[0].file}: {report.notes[0].text}" if report.notes else ""
        raise UnreadableInput(f"no Python source could be read in {', '.join(args.paths)}{first}")
    _print_report(report, args)
    return 1 if report.violations else 0


def _check_usage(args: Namespace) -> None:
    if not args.paths:
        raise UsageError("give a file or a folder, or --list (see forkpoint lint --help)")
    for path in args.paths:
        if path == STDOUT:
            raise UsageError("lint reads files and folders, not standard input")
        if not Path(path).exists():
            raise UsageError(f"{path}: no such file or directory")
    if args.sarif == STDOUT and (args.json or args.github or args.diff):
        raise UsageError("--sarif - prints instead of --json, --github and --diff; give it a file")


def _options(args: Namespace) -> "Options":
    """From the configuration file, overridden by the command line."""
    from dataclasses import replace

    from forkpoint.lint.catalogue import read_config, unknown_code

    select, ignore = tuple(split_names(args.select)), tuple(split_names(args.ignore))
    for wrong in filter(None, map(unknown_code, (*select, *ignore))):
        raise UsageError(f"{wrong} (see forkpoint lint --list)")
    options = read_config(args.paths[0])
    return replace(
        options,
        select=select or options.select,
        ignore=(*options.ignore, *ignore),
        advisory=options.advisory if args.advisory is None else args.advisory,
    )


def _repair(args: Namespace, options: "Options", progress: Progress) -> "LintReport":
    """Returns what to report: after --fix, findings in the changed source; with --diff, all findings."""
    from forkpoint.lint import lint
    from forkpoint.lint.edits import plan_changes
    from forkpoint.lint.run import read_with_progress

    program = read_with_progress(args.paths, progress)
    report = lint(program, options, progress)
    planned = plan_changes(report, program)
    if args.diff:
        _print_diff(planned)
        return report
    _write(planned)
    return lint(read_with_progress(args.paths, progress), options, progress) if planned.changes else report


def _print_diff(planned: "FileChanges") -> None:
    from forkpoint.lint.edits import render_diff

    # As bytes: a diff must have the encoding of its file to apply.
    sys.stdout.flush()
    sys.stdout.buffer.write(b"".join(map(render_diff, planned.changes)))
    _print_left(planned)


def _write(planned: "FileChanges") -> None:
    from forkpoint.lint.edits import write_change

    for change in planned.changes:
        try:
            write_change(change)
        except OSError as error:
            raise UnreadableInput(f"{change.file}: cannot be written: {error.strerror}") from error
        say(f"{change.file}: {change.edits} repaired")
    _print_left(planned)


def _print_left(planned: "FileChanges") -> None:
    for note in planned.notes:
        say(f"{note.file}: {note.text}")
    if planned.left:
        say(f"{planned.left} repairs overlap others; run it again to apply them")


def _print_report(report: "LintReport", args: Namespace) -> None:
    if args.sarif is not None:
        from forkpoint.lint.render.sarif import render_sarif

        document = render_sarif(report)
        if args.sarif == STDOUT:
            print(document)
            return
        write_file(args.sarif, [document, "\n"])
    if args.json:
        from forkpoint.lint.render.json_report import render_json

        print(render_json(report))
    elif args.github:
        from forkpoint.lint.render.github import render_annotations

        for line in render_annotations(report):
            print(line)
    elif not args.diff:
        _print_text(report)


def _print_text(report: "LintReport") -> None:
    from forkpoint.lint.render.text import render_text

    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        for line in render_text(report, columns if sys.stdout.isatty() else None):
            print("".join(text for text, _ in line))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in render_text(report, max(MIN_WIDTH, columns)):
        console.print(Text.assemble(*line), soft_wrap=True, highlight=False)


def _print_rules(*, as_json: bool) -> None:
    from forkpoint.lint.catalogue import all_rules
    from forkpoint.lint.render.json_report import render_rules_json
    from forkpoint.lint.render.text import render_rule_list

    print(render_rules_json(all_rules()) if as_json else render_rule_list(all_rules()))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file or folder")
    parser.add_argument("--list", action="store_true", help="list the rules; forkpoint explain CODE describes one")
    rules = parser.add_argument_group("rules")
    rules.add_argument("--select", action="append", default=[], metavar="CODES", help="only these, separated by commas")
    rules.add_argument("--ignore", action="append", default=[], metavar="CODES", help="never these")
    rules.add_argument(
        "--advisory", action=BooleanOptionalAction, help="also rules and places that are only suspicious"
    )
    outputs = parser.add_argument_group("output").add_mutually_exclusive_group()
    outputs.add_argument("--json", action="store_true", help="print JSON (schema forkpoint.lint/1)")
    outputs.add_argument("--github", action="store_true", help="print annotations for a GitHub workflow")
    outputs.add_argument(
        "--diff", action="store_true", help="print safe repairs as a diff for git apply; write nothing"
    )
    parser.add_argument("--fix", action="store_true", help="make the safe repairs, then report what is left")
    parser.add_argument("--sarif", metavar="FILE", help="also write SARIF 2.1.0; - prints it instead")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="do not use or write the cache")
    add_quiet_argument(parser, "no progress on standard error")


COMMAND = Command(
    name="lint",
    help="find places in source where ranks can diverge",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
