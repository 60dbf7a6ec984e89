"""`forkpoint brief`: an incident in one short answer, for an agent or a person who wants to read the evidence itself."""

import sys
from argparse import ArgumentParser, Namespace

from forkpoint.cli.options import Command, add_quiet_argument, add_source_argument, existing_path, whole_number
from forkpoint.cli.output import Progress, import_numpy, say_problems
from forkpoint.errors import UsageError

_DESCRIPTION = """\
Print in one short answer what an expert would read about an incident: the verdict
as a claim, the other hypotheses with the evidence for and against each, where
every cohort of ranks is, what logs say side by side, the calls around the fork,
and the source of all these places. By cohort, so 10,000 ranks take as much space
as 4. Secrets are masked; hosts and people get pseudonyms.

What does not fit is counted, and --part prints one part in full. A coding agent
should start with this one command.

exit codes:
  0  printed
  2  wrong usage
  3  nothing could be read
"""
_LEAST = 2000


def run(args: Namespace) -> int:
    import_numpy()
    from forkpoint.brief import write_brief
    from forkpoint.brief.case import QuestionRefused, open_case

    with Progress(sys.stderr, quiet=args.quiet, in_bytes=True) as progress:
        case = open_case(args.paths, args.source, progress if progress.is_on else None, args.use)
    if not args.quiet:
        say_problems(case.incident.capture.problems)
    try:
        print(write_brief(case, args.characters, args.part))
    except QuestionRefused as error:
        raise UsageError(f"--part: {error}") from error
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=existing_path, metavar="PATH", help="file or folder of the incident")
    add_source_argument(parser)
    parser.add_argument(
        "--characters",
        type=whole_number(_LEAST, 1_000_000),
        default=12_000,
        metavar="N",
        help="characters of the answer (default: 12000)",
    )
    parser.add_argument("--part", metavar="NAME", help="only this part, as the answer names it")
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="FILE",
        help="judge this file although it was set aside as another run's (repeatable)",
    )
    add_quiet_argument(parser)


COMMAND = Command(
    name="brief",
    help="an incident in one short answer, for an agent",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
