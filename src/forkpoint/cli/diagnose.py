"""`forkpoint diagnose`: dumps, logs and stacks in, one verdict out; with `--cluster` the nodes summarise their own dumps first."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from forkpoint.cli.options import (
    Command,
    add_links_argument,
    add_quiet_argument,
    add_source_argument,
    add_width_argument,
    existing_path,
    seconds,
    whole_number,
)
from forkpoint.cli.output import (
    STDOUT,
    Progress,
    check_writable,
    exit_code,
    import_numpy,
    print_verdict,
    say,
    say_problems,
    write_bytes,
    write_file,
)
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.evidence import Choice
    from forkpoint.gather.cluster import ClusterSummary
    from forkpoint.gather.engines import ClusterReach, Engine
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict

# ---------------------------------------------------------------------------------------------------------------------
# `forkpoint diagnose --cluster`: the nodes summarise their own dumps, and what comes back is diagnosed here.

ENGINES = ("ray", "monarch", "ssh", "slurm")
_ONLY_WITH = ("hosts", "hosts_file", "jobid", "address", "node_timeout", "node_python", "keep", "representatives")


def add_cluster_arguments(parser: ArgumentParser) -> None:
    options = parser.add_argument_group("dumps on other machines", "PATH is then a path on the nodes (docs/cluster.md)")
    options.add_argument("--cluster", choices=ENGINES, help="how to reach the nodes; each summarises its own dumps")
    options.add_argument("--hosts", metavar="A,B,...", help="ssh: the nodes; slurm: of these alone; monarch: addresses")
    options.add_argument("--hosts-file", metavar="FILE", help="the same, one on a line")
    options.add_argument("--jobid", metavar="N", help="slurm: the running job whose nodes hold the dumps")
    options.add_argument("--address", metavar="HOST:PORT", help="ray: the head (default: the cluster of this machine)")
    options.add_argument("--node-timeout", type=seconds, metavar="S", help="how long to wait for a node (default: 60)")
    options.add_argument("--node-python", metavar="PYTHON", help="ssh, slurm: there, with forkpoint (default: python3)")
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
        raise UsageError(f"{wrong[0]}: with --cluster a PATH is one on the nodes, and begins with / or ~/")
    if args.keep:
        check_writable("--keep", args.keep)
    if args.representatives and not Path(args.representatives).is_dir():
        raise UsageError(f"--representatives {args.representatives}: is not a directory; create it first")


class ClusterRun(NamedTuple):
    path: str
    """Of the summary, which is diagnosed like any file. It goes when the run ends; --keep names another."""
    engine: "Engine"
    gathered: "ClusterSummary"
    folder: str | None
    leave: ExitStack
    """Ends the engine, once."""

    def finish(self, capture: "Capture", verdict: "Verdict") -> "Verdict":
        """With the dumps it rests on, where they were asked for. The nodes are left then."""
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
    """Asks the nodes. Raises UsageError, and UnreadableInput where none of them has anything."""
    from tempfile import NamedTemporaryFile

    from forkpoint.gather.cluster import gather
    from forkpoint.gather.engines import open_engine

    with ExitStack() as at_end, ExitStack() as leave:
        # Ray prints what it hears of dead nodes, at any time; standard output is for the verdict.
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
        write_bytes(args.keep, [gathered.summary])
    if not args.quiet:
        answered = len(gathered.nodes) - len(gathered.problems)
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


# ---------------------------------------------------------------------------------------------------------------------
# `forkpoint diagnose`: dumps, logs and stacks in, one verdict out.

_DESCRIPTION = """\
Read flight recorder dumps, logs and stacks of a job that hung or failed, find
the earliest point where its ranks stopped agreeing, and say who left, why, and
what to do.

PATH is a file, a folder or - for standard input, in any mixture. What a file
is, and which rank wrote it, is found from its content and its name. Nothing in
it is executed.

exit codes:
  0  healthy
  1  something found
  2  wrong usage
  3  nothing could be read
  4  inconclusive: the evidence does not decide, and the report says what would
"""

_MARKDOWN = (".md", ".markdown")


def run(args: Namespace) -> int:
    if args.embed_source and not (args.html and args.source):
        raise UsageError("--embed-source puts lines of --source DIR into --html FILE: give both")
    check_cluster_arguments(args)
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
        embed_source=args.embed_source,
        follow_links=args.follow_links,
        finish=finish,
    )
    return exit_code(verdict)


def diagnose_paths(  # noqa: PLR0913 - all that can be asked for
    paths: Sequence[str],
    args: Namespace,
    source: Sequence[str] = (),
    *,
    choice: "Choice | None" = None,
    embed_source: bool = False,
    follow_links: bool = False,
    finish: "Callable[[Capture, Verdict], Verdict] | None" = None,
) -> "Verdict":
    """Read, diagnose, print and write, as the output options say. `finish` has the last word on the verdict."""
    import_numpy()
    from forkpoint.evidence import ADMIT_BY_PROOF, read
    from forkpoint.pipeline import diagnose

    _check_outputs(args)
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        capture = read(paths, progress, choice or ADMIT_BY_PROOF, follow_links=follow_links)
        verdict = diagnose(capture, source, picture=bool(args.html), embed_source=embed_source)
        verdict = finish(capture, verdict) if finish else verdict
    if not args.quiet:
        say_problems(capture.problems)
    try:
        _write_outputs(paths, capture, verdict, args)
    finally:  # a file that cannot be written does not take the answer away
        if not _print_instead(verdict, args):
            print_verdict(verdict, as_json=args.json, width=args.width)
        _print_verdict_line(verdict, args)
    return verdict


def _check_outputs(args: Namespace) -> None:
    """Raises UsageError before the work is done, not after it."""
    printed = [option for option in ("json", "md", "sarif") if getattr(args, option) in (True, STDOUT)]
    if len(printed) > 1:
        raise UsageError(f"only one of --{', --'.join(printed)} can be printed; give the others a file")
    for option in ("html", "perfetto"):
        if getattr(args, option) == STDOUT:
            raise UsageError(f"--{option} writes a file; name one")
    for option in ("html", "md", "sarif", "perfetto"):
        path = getattr(args, option)
        if path not in (None, STDOUT):
            check_writable(f"--{option}", path)


def _print_instead(verdict: "Verdict", args: Namespace) -> bool:
    """Whether an output went to standard output in place of the report."""
    if args.md == STDOUT:
        print(_markdown(verdict), end="")
    elif args.sarif == STDOUT:
        print(_sarif(verdict))
    return STDOUT in (args.md, args.sarif)


def _write_outputs(paths: Sequence[str], capture: "Capture", verdict: "Verdict", args: Namespace) -> None:
    """Each file, whatever becomes of the others. Raises UsageError at the end."""
    failed: list[str] = []
    if args.html is not None:
        from forkpoint.report.page import render_html

        failed += _written(args.html, [render_html(verdict)], args)
    if args.md not in (None, STDOUT):
        failed += _written(args.md, [_markdown(verdict)], args)
    if args.sarif not in (None, STDOUT):
        failed += _written(args.sarif, [_sarif(verdict), "\n"], args)
    if args.perfetto is not None:
        with Progress(sys.stderr, quiet=args.quiet) as progress:
            failed += _written(args.perfetto, _perfetto(paths, capture, verdict, progress), args)
        if not args.quiet:
            _print_unread(capture)
    if failed:
        raise UsageError("; ".join(failed))


def _print_verdict_line(verdict: "Verdict", args: Namespace) -> None:
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
        say(f"written: {path}")
    return []


def _markdown(verdict: "Verdict") -> str:
    from forkpoint.report.markdown import render_markdown

    return render_markdown(verdict)


def _sarif(verdict: "Verdict") -> str:
    from forkpoint.report.sarif import render_sarif

    return render_sarif(verdict)


def _perfetto(paths: Sequence[str], capture: "Capture", verdict: "Verdict", progress: Progress) -> Iterable[str]:
    from forkpoint.report.perfetto import export_perfetto, read_dumps_again

    return export_perfetto(capture, verdict, read_dumps_again(paths, capture, progress))


def _print_unread(capture: "Capture") -> None:
    """What came through a pipe is gone: the trace is without it."""
    from forkpoint.evidence.files import STDIN
    from forkpoint.model.world import name_ranks

    piped = [trace.rank for trace in capture.traces if trace.file == STDIN]
    if piped:
        say(f"{name_ranks(piped)}: not in the trace, save the dump to a file first")


def _markdown_file(path: str) -> str:
    """--md may stand without a file, so the word after it could be evidence, which must not be overwritten."""
    if path != STDOUT and PurePath(path).suffix not in _MARKDOWN:
        raise ArgumentTypeError(f"{path} does not end in .md; to print Markdown, put --md after the paths")
    return path


def add_output_arguments(parser: ArgumentParser) -> None:
    """Options of every command that prints a verdict."""
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON (schema forkpoint.verdict/1)")
    add_width_argument(parser)
    add_quiet_argument(parser, "no progress and no remarks on standard error; the VERDICT line stays")
    _add_output_files(parser)


def _add_output_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the report as one file for a browser, which asks the network for nothing",
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
    """Which files are judged together, where that is not plain."""
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        type=existing_path,
        metavar="FILE",
        help="judge this file although it was set aside as another run's (repeatable)",
    )
    parser.add_argument("--all", action="store_true", help="set nothing aside except second dumps of one rank")
    parser.add_argument(
        "--attempt",
        type=whole_number(0),
        metavar="N",
        help="of a job that was restarted, the attempt to judge, from 0 (default: the first that failed)",
    )


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="file, folder, address (s3://...), or - for standard input"
    )
    add_source_argument(parser)
    add_links_argument(parser)
    parser.add_argument(
        "--embed-source",
        action="store_true",
        help="put lines of --source into the --html file, around sites and stacks and as patches; else it holds none",
    )
    _add_choice_arguments(parser)
    add_output_arguments(parser)
    add_cluster_arguments(parser)


COMMAND = Command(
    name="diagnose",
    help="find where ranks stopped agreeing, from dumps, logs and stacks",
    description=_DESCRIPTION,
    add_arguments=_add_arguments,
    run=run,
)
