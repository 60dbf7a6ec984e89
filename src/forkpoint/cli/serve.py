"""`forkpoint serve`: shows the report in a browser, and updates it as evidence arrives."""

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, add_source_argument, directory, port
from forkpoint.cli.output import needing_extra, say
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.history.store import Store

_DESCRIPTION = """\
Show the report of `diagnose --html` in a browser on this machine, and update it
when files arrive or change. Open the printed address: its token is needed once,
then the browser keeps it in a cookie. Ctrl-C ends it.

If DIR contains files, it is one incident, with everything below it. Otherwise
each of its folders is one, and a list shows them. It listens on 127.0.0.1 only,
answers only GET, and changes nothing. To look from another machine, forward the
port under the same number: ssh -L PORT:127.0.0.1:PORT HOST

With --store, also show the page of forkpoint history, or only that without DIR,
and update it when incidents arrive.

Needs two more packages: pip install 'forkpoint[serve]'
"""


def run(args: Namespace) -> int:
    if args.embed_source and not args.source:
        raise UsageError("--embed-source needs --source DIR")
    if args.folder is None and not args.store:
        raise UsageError("give a folder of evidence, a --store, or both")
    with needing_extra("serve", "serve"):
        from forkpoint.live.serve.server import bind
        from forkpoint.live.serve.server import run as serve
    with ExitStack() as stack:
        store = stack.enter_context(closing(_open(args.store))) if args.store else None
        bound = bind(args.port)
        print(bound.url, flush=True)
        say("open this address in a browser; Ctrl-C ends the server")
        with suppress(KeyboardInterrupt):  # the normal way to end
            serve(bound, args.folder, args.source, embed_source=args.embed_source, store=store)
    return 0


def _open(place: str) -> "Store":
    with needing_extra("--store", "history"):
        from forkpoint.history.store import open_store
    return open_store(place, create=False)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=directory, metavar="DIR", help="folder of an incident, or of several")
    parser.add_argument("--store", metavar="URL", help="also show the history of this store (docs/history.md)")
    parser.add_argument("--port", type=port, default=0, metavar="N", help="port to listen on (default: any free port)")
    add_source_argument(parser)
    parser.add_argument(
        "--embed-source", action="store_true", help="show source lines around sites and stacks, and patches"
    )


COMMAND = Command("serve", "show the report in a browser, updated as files arrive", _DESCRIPTION, _add_arguments, run)
