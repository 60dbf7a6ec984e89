"""`forkpoint collect`: copies the evidence of a job into one folder."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, count, seconds
from forkpoint.cli.output import say
from forkpoint.cli.watch import _RAS
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.gather.collect import RankQuestion
    from forkpoint.gather.folder import Manifest

_DESCRIPTION = """\
Copy the dumps, logs, stacks, RAS reports and kernel messages of a job into one
new folder, with a manifest that says where each is from, and which are cut off,
stale or still growing. Nothing is moved, changed or signalled.

PLACE is one of
  DIR or FILE                       on this machine or a shared disk
  ssh:HOST:PATH                     over ssh, without asking for passwords
  srun:JOBID[:PATH]                 on each node of a running Slurm job
  kubectl:NAMESPACE/SELECTOR[:PATH] in each pod, with the pod's log
  s3://... and other addresses      through fsspec: pip install 'forkpoint[collect]'

Without a PLACE, or with --here: torch's usual places on this machine, what the
environment and running ranks name, and the kernel's messages. Dumps that a
log names are fetched as well. Other machines run find and tar, nothing else.
With --ask, running ranks first write dumps. Details: docs/collect.md

exit codes:
  0  something was gathered; notes say what was not
  2  wrong usage
  3  nothing was found
"""

_MAX_NOTES = 20
_NOTHING = 3


def run(args: Namespace) -> int:
    from forkpoint.gather.collect import Wanted, collect
    from forkpoint.gather.folder import CollectLimits

    questions = _questions(args)
    wanted = Wanted(
        places=tuple(args.places),
        here=args.here or not (args.places or questions),
        ask=args.ask,
        questions=questions,
        patience_s=args.patience,
        limits=CollectLimits(args.max_mib << 20, args.max_files, args.seconds),
    )
    manifest = collect(wanted, args.out)
    if args.json:
        from forkpoint.report.escape import json_text

        print(json_text(manifest))
    else:
        _print(manifest, args.out)
    return 0 if manifest.files else _NOTHING


def _questions(args: Namespace) -> "tuple[RankQuestion, ...]":
    from forkpoint.gather.collect import RankQuestion, ask_pipes
    from forkpoint.live.watch.sources.ask import Ras, parse_address
    from forkpoint.live.watch.sources.debug_server import DebugServer, parse_workers
    from forkpoint.live.watch.sources.pipes import usual_prefixes

    if args.debug_server and args.worker:
        raise UsageError("--debug-server finds the workers itself: leave out --worker, or give all workers instead")
    asked: list[RankQuestion] = []
    if args.debug_server or args.worker:
        frontend = parse_address(args.debug_server) if args.debug_server else None
        asked.append(RankQuestion(DebugServer(parse_workers(args.worker), frontend, dated=False), 0.0))
    if args.pipe:
        prefixes = (args.dump_prefix,) if args.dump_prefix else usual_prefixes()
        asked.append(ask_pipes(args.pipe, prefixes, args.patience))
    if args.ras:
        asked.append(RankQuestion(Ras(parse_address(args.ras)), 0.0))
    return tuple(asked)


def _print(manifest: "Manifest", out: str) -> None:
    from collections import Counter

    kinds = Counter(file.kind for file in manifest.files)
    size = sum(file.size for file in manifest.files)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing"
    print(f"gathered  {told}; {size / 1e6:.1f} MB in {escape(out)}")
    for file in manifest.files:
        wrong = [file.cut, file.truncated, file.stale, "still growing" if file.growing else None]
        if said := "; ".join(text for text in wrong if text):
            print(f"          {escape(file.file)}: {escape(said)}")
    for note in manifest.notes[:_MAX_NOTES]:
        say(f"{note.place}: {note.text}")
    if len(manifest.notes) > _MAX_NOTES:
        say(f"and {len(manifest.notes) - _MAX_NOTES} more notes in manifest.json")
    if manifest.files:
        print(f"next      forkpoint diagnose {escape(out)}")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("places", nargs="*", metavar="PLACE", help="where to look; see above")
    parser.add_argument("-o", "--out", required=True, metavar="DIR", help="a new or empty folder for the evidence")
    parser.add_argument(
        "--here", action="store_true", help="also this machine's usual places (default without a PLACE)"
    )
    _add_questions(parser)
    parser.add_argument("--max-mib", type=count, default=4096, metavar="N", help="copy at most N MiB (default: 4096)")
    parser.add_argument(
        "--max-files", type=count, default=20_000, metavar="N", help="copy at most N files (default: 20000)"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=300.0, metavar="S", help="time limit for everything (default: 300)"
    )
    parser.add_argument("--json", action="store_true", help="print the manifest (schema forkpoint.collect/1)")


def _add_questions(parser: ArgumentParser) -> None:
    parser.add_argument("--ask", action="store_true", help="have running ranks of this machine write dumps first")
    parser.add_argument(
        "--patience", type=seconds, default=30.0, metavar="S", help="how long a rank may take to write (default: 30)"
    )
    parser.add_argument("--pipe", metavar="STEM", help="ask through STEM<rank>.pipe, as forkpoint watch does")
    parser.add_argument("--dump-prefix", metavar="PREFIX", help="where --pipe makes ranks write")
    parser.add_argument("--debug-server", metavar="HOST:PORT", help="ask all ranks of this torch debug server")
    parser.add_argument(
        "--worker", nargs="+", default=[], metavar="HOST:PORT", help="ask these debug servers, as forkpoint watch does"
    )
    parser.add_argument("--ras", nargs="?", const=_RAS, metavar="HOST:PORT", help=f"ask NCCL's RAS (default: {_RAS})")


COMMAND = Command(
    "collect", "gather a job's evidence from disks, nodes and pods into one folder", _DESCRIPTION, _add_arguments, run
)
