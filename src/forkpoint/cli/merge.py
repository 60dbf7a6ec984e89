"""`forkpoint merge`: many summaries in, one out."""

from argparse import ArgumentParser, Namespace

from forkpoint.cli.options import Command
from forkpoint.cli.output import check_outputs, import_numpy
from forkpoint.cli.summarise import add_summary_output, write_summary_to

_DESCRIPTION = """\
Join summaries (.fps, written by `forkpoint summarise`) into one. The order does
not matter, nor whether they are joined at once or in a tree: the bytes are the
same, and a part that occurs twice counts once.
"""


def run(args: Namespace) -> int:
    import_numpy()
    from forkpoint.evidence.summary_file import merge_files

    check_outputs(args, "output")
    write_summary_to(args.output, merge_files(args.paths), quiet=args.quiet)
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="FILE",
        help="a summary, or a folder of them (dumps and logs among them are summarised)",
    )
    add_summary_output(parser)


COMMAND = Command("merge", "join many summaries into one", _DESCRIPTION, _add_arguments, run)
