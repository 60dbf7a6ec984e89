"""`forkpoint summarise`: the evidence of a node in, a small file out that can be diagnosed anywhere."""

import sys
from argparse import ArgumentParser, Namespace

from forkpoint.cli.options import Command, add_quiet_argument
from forkpoint.cli.output import STDOUT, Progress, check_outputs, import_numpy, say, write_bytes

_DESCRIPTION = """\
Read the evidence on a node (flight recorder dumps, logs, stacks, kernel messages)
and write what a diagnosis needs of it: about 1 kB per rank. Run it on each node,
bring the .fps files together, and diagnose them:

  forkpoint summarise /tmp/dumps -o node17.fps --origin node17
  forkpoint diagnose *.fps

The verdict is the same as from the files. Nothing in them is executed.
"""


def run(args: Namespace) -> int:
    import_numpy()
    from forkpoint.evidence.summary_file import summarise

    check_outputs(args, "output")
    with Progress(sys.stderr, quiet=args.quiet, in_bytes=True) as progress:
        data = summarise(args.paths, args.origin, progress)
    write_summary_to(args.output, data, quiet=args.quiet)
    return 0


def write_summary_to(output: str, data: bytes, *, quiet: bool) -> None:
    if output == STDOUT:
        sys.stdout.buffer.write(data)
        return
    write_bytes(output, [data])
    if not quiet:
        say(f"{output}: {len(data)} bytes")


def add_summary_output(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .fps file; - for standard output")
    add_quiet_argument(parser)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="file or folder, or - for standard input")
    add_summary_output(parser)
    parser.add_argument(
        "--origin", default="", metavar="NAME", help="name of the node, put in front of its file names in the verdict"
    )


COMMAND = Command(
    "summarise",
    "write a node's evidence as one small file (.fps), to diagnose elsewhere",
    _DESCRIPTION,
    _add_arguments,
    run,
)
