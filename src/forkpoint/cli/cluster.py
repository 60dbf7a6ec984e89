"""`forkpoint diagnose --cluster`: the nodes summarise their own dumps, and the summaries are diagnosed here."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forkpoint.cli.options import seconds
from forkpoint.cli.output import Progress, check_writable, say, write_bytes
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.gather.cluster import ClusterSummary
    from forkpoint.gather.engines import ClusterReach, Engine
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict

ENGINES = ("ray", "monarch", "ssh", "slurm")
_ONLY_WITH = ("hosts", "hosts_file", "jobid", "address", "node_timeout", "node_python", "keep", "representatives")


def add_cluster_arguments(parser: ArgumentParser) -> None:
    options = parser.add_argument_group("dumps on other machines", "PATH is then a path on the nodes (docs/cluster.md)")
    options.add_argument("--cluster", choices=ENGINES, help="how to reach the nodes; each summarises its own dumps")
    options.add_argument("--hosts", metavar="A,B,...", help="ssh: the nodes; slurm: only these; monarch: addresses")
    options.add_argument("--hosts-file", metavar="FILE", help="the same, one per line")
    options.add_argument("--jobid", metavar="N", help="slurm: the running job whose nodes hold the dumps")
    options.add_argument("--address", metavar="HOST:PORT", help="ray: the head (default: the cluster of this machine)")
    options.add_argument("--node-timeout", type=seconds, metavar="S", help="how long to wait for a node (default: 60)")
    options.add_argument(
        "--node-python", metavar="PYTHON", help="ssh, slurm: Python with forkpoint there (default: python3)"
    )
    options.add_argument("--keep", metavar="FILE.fps", help="keep the summary of all nodes, to diagnose it again")
    options.add_argument(
        "--representatives", metavar="DIR", help="fetch the full dumps of at most eight ranks: suspects, then cohorts"
    )


def check_cluster_arguments(args: Namespace) -> None:
    """Raises UsageError."""
    given = [f"--{name.replace('_', '-')}" for name in _ONLY_WITH if getattr(args, name) is not None]
    if given and not args.cluster:
        raise UsageError(f"{given[0]} needs --cluster {'|'.join(ENGINES)}")
    if not args.cluster:
        return
    if wrong := [path for path in args.paths if not path.startswith(("/", "~/")) or "\n" in path]:
        raise UsageError(f"{wrong[0]}: with --cluster, PATH is on the nodes and must begin with / or ~/")
    if args.keep:
        check_writable("--keep", args.keep)
    if args.representatives and not Path(args.representatives).is_dir():
        raise UsageError(f"--representatives {args.representatives}: is not a directory; create it first")


class ClusterRun(NamedTuple):
    path: str
    """The summary, which is diagnosed like any file. A temporary file; --keep writes another."""
    engine: "Engine"
    gathered: "ClusterSummary"
    folder: str | None
    leave: ExitStack
    """Closes the engine."""

    def finish(self, capture: "Capture", verdict: "Verdict") -> "Verdict":
        """Fetches the representative dumps, if asked for, and then disconnects from the nodes."""
        if self.folder is None:
            return verdict
        from forkpoint.gather.cluster import fetch_representatives, records_of, with_representatives

        with self.leave:
            records = records_of(self.gathered.summary, capture)
            nodes = [answer.node for answer in self.gathered.nodes]
            fetched = fetch_representatives(verdict, records, self.engine, nodes, Path(self.folder))
        return with_representatives(verdict, fetched)


@contextmanager
def cluster_run(args: Namespace) -> Generator[ClusterRun]:
    """Asks the nodes. Raises UsageError, and UnreadableInput if no node has evidence."""
    from tempfile import NamedTemporaryFile

    from forkpoint.gather.cluster import gather
    from forkpoint.gather.engines import open_engine

    with ExitStack() as at_end, ExitStack() as leave:
        # Ray prints messages about dead nodes at any time; standard output is for the verdict.
        nowhere = leave.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        leave.enter_context(redirect_stdout(nowhere))
        engine = open_engine(args.cluster, _reach(args))
        leave.callback(engine.close)
        with Progress(sys.stderr, quiet=args.quiet) as progress:
            gathered = gather(engine, args.paths, progress)
        if not args.representatives:
            leave.close()
        _tell(gathered, args)
        file = at_end.enter_context(NamedTemporaryFile(prefix="forkpoint-", suffix=".fps"))
        file.write(gathered.summary)
        file.flush()
        yield ClusterRun(file.name, engine, gathered, args.representatives, leave)


def _tell(gathered: "ClusterSummary", args: Namespace) -> None:
    if args.keep:
        try:
            write_bytes(args.keep, [gathered.summary])
        except UsageError as error:  # still print the verdict: the nodes have answered
            say(str(error))
    if not args.quiet:
        answered = sum(answer.problem is None for answer in gathered.nodes)
        told = f"summaries of {answered} of {len(gathered.nodes)} nodes, {len(gathered.summary)} bytes"
        say(told)


def _reach(args: Namespace) -> "ClusterReach":
    from forkpoint.gather.engines import ClusterReach

    given = {
        "job": args.jobid,
        "address": args.address,
        "python": args.node_python,
        "node_timeout_s": args.node_timeout,
    }
    return ClusterReach(hosts=_hosts(args), **{name: value for name, value in given.items() if value is not None})


def _hosts(args: Namespace) -> tuple[str, ...]:
    hosts: str = args.hosts or ""
    named = hosts.split(",")
    if args.hosts_file:
        try:
            lines = Path(args.hosts_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--hosts-file {args.hosts_file}: cannot be read ({error})") from error
        named += [line.partition("#")[0] for line in lines]
    return tuple(dict.fromkeys(stripped for name in named if (stripped := name.strip())))
