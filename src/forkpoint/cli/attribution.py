"""`forkpoint attribution`: verdicts for NVIDIA's ft_launcher."""

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from forkpoint.cli.options import Command, add_source_argument, directory, port
from forkpoint.cli.output import needing_extra, say

_DESCRIPTION = """\
Answer NVIDIA's ft_launcher when it asks whether a failed cycle should be
restarted. Pass the printed address to its option --ft-attribution-endpoint;
its option --ft-attribution-stop-action decides whether STOP ends the job.
Ctrl-C ends it.

It listens on 127.0.0.1 only: run it on the node that hosts ft_launcher's store.
Only files below --root, and new ones in --dumps, are read.

Needs two more packages: pip install 'forkpoint[serve]'
"""


def run(args: Namespace) -> int:
    with needing_extra("attribution", "serve"):
        from forkpoint.live.attribution import Readable, serve
        from forkpoint.live.serve.server import bind
    bound = bind(args.port)
    print(f"http://127.0.0.1:{bound.port}/{bound.token}", flush=True)
    say("give this address to --ft-attribution-endpoint; Ctrl-C ends the service")
    dumps = Path(args.dumps).absolute() if args.dumps else None
    with suppress(KeyboardInterrupt):  # the normal way to end
        serve(bound, Readable(Path(args.root).absolute(), dumps, tuple(args.source)))
    return 0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--root", type=directory, required=True, metavar="DIR", help="the folder of --ft-per-cycle-applog-prefix"
    )
    parser.add_argument("--dumps", type=directory, metavar="DIR", help="where ranks write their dumps")
    parser.add_argument("--port", type=port, default=0, metavar="N", help="port to listen on (default: any free port)")
    add_source_argument(parser)


COMMAND = Command(
    "attribution",
    "tell NVIDIA's ft_launcher whether a failed cycle should be restarted",
    _DESCRIPTION,
    _add_arguments,
    run,
)
