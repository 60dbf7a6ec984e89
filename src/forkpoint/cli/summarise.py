"""`forkpoint summarise`: dumps, logs and stacks of a node in, a small file out that is diagnosed anywhere."""

import sys
from argparse import ArgumentParser, Namespace

from forkpoint.cli.command import Command
from forkpoint.cli.one_thread import import_numpy
from forkpoint.cli.output_file import check_writable, write_bytes
from forkpoint.cli.progress import Progress

STDOUT = "-"
_DESCRIPTION = """\
Read what lies on a node (flight recorder dumps, logs, stacks, kernel messages)
and write what a diagnosis needs of it: about 1 kB per rank. Run it where the
dumps lie, bring the .fps files together, and diagnose them:

  forkpoint summarise /tmp/dumps -o node17.fps --origin node17
  forkpoint diagnose *.fps

The verdict is that of the files themselves. Nothing in them is executed.
"""


def run(args: Namespace) -> int:
    import_numpy()
    from forkpoint.ingest.summary_file import summarise

    if args.output != STDOUT:
        check_writable("--output", args.output)
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        data = summarise(args.paths, args.origin, progress)
    write_summary_to(args.output, data, quiet=args.quiet)
    return 0


def write_summary_to(output: str, data: bytes, *, quiet: bool) -> None:
    if output == STDOUT:
        sys.stdout.buffer.write(data)
        return
    write_bytes(output, [data])
    if not quiet:
        print(f"forkpoint: {output}: {len(data)} bytes", file=sys.stderr)


def add_summary_output(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .fps file; - for standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress and no remarks on standard error")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file or folder, or - for standard input")
    add_summary_output(parser)
    parser.add_argument(
        "--origin", default="", metavar="NAME", help="the node: stands before the names of its files in the verdict"
    )


COMMAND = Command(
    name="summarise",
    help="a node's evidence as one small file (.fps), to be diagnosed elsewhere",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
