"""`forkpoint lab`: breaks a small real job on purpose, and checks whether the diagnosis is right."""

import shlex
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command, count, did_you_mean, directory
from forkpoint.cli.output import check_outputs, print_verdict, say, terminal_width, write_file
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.lab.fault import CaseFolder, Fault
    from forkpoint.lab.ranks import Backend, LabSettings
    from forkpoint.lab.record import RecordedFault, Scored, TorchHere
    from forkpoint.model.verdict import Verdict

_DESCRIPTION = """\
Run small real training jobs that are broken on purpose, keep the evidence that
a person would have (dumps, logs and stacks of each rank), and diagnose it.

  list   list the faults
  run    inject a fault, diagnose it, and say what was really broken
  score  inject all faults and count how often the diagnosis is right
  collectives
         send a known pattern through every collective, compare the result bit
         by bit, time it, and name the link or rank that is slow

Jobs run on the CPU with gloo, or with NCCL if there is a GPU, which the ranks
then share. torch must be installed. Nothing is left running.

exit codes of run and score:
  0  no innocent rank is accused, and at least 90 % of the verdicts are right
  1  otherwise
  2  wrong usage, or no torch

exit codes of collectives:
  0  all data are right, and no link is slower than similar ones
  1  otherwise, or a rank stopped
  2  wrong usage, or no torch
  4  the ranks ended before they had a result
"""

_COLLECTIVES = """\
Send a known pattern through every collective, type and size over the groups of
the job, compare the result bit by bit, and time it: latency and bus bandwidth
as nccl-tests define them. Then time every pair of ranks, and name the link,
rank or host that is slower than similar ones.

It starts its own ranks here. For several nodes use the job's own launcher:
--script-only prints the command.
"""

_FEW_RANKS = 4
_NCCL_TIMEOUT_S, _GLOO_TIMEOUT_S = 20, 10
"""Timeouts of collectives. With NCCL ranks that share one GPU, creating a communicator takes seconds."""
_NCCL_LINGER_S, _GLOO_LINGER_S = 20, 8
_MAX_WIDTH = 100


def run(args: Namespace) -> int:
    return args.lab(args)


def _run_list(args: Namespace) -> int:
    from forkpoint.lab.fault import FAULTS
    from forkpoint.lab.record import list_json, list_text

    print(list_json(FAULTS) if args.json else list_text(FAULTS))
    return 0


def _run_faults(args: Namespace) -> int:
    from forkpoint.lab.record import Score, score_json, truth_text

    if args.html and len(args.names) > 1:
        raise UsageError("--html writes one report: give one fault")
    check_outputs(args, "html")
    faults, settings = _chosen(args.names), _settings(args)
    scored: list[Scored] = []
    for recorded in _recorded(_possible(faults, settings), settings, 1):
        case = _diagnosed(recorded, html=args.html)
        scored.append(case)
        if not args.json:
            print_verdict(case.verdict, as_json=False, width=None)
            print(f"\n{truth_text(case, terminal_width(_MAX_WIDTH))}")
            print(f"evidence: {escape(str(recorded.folder))}\n", flush=True)
    if args.json:
        print(score_json(Score(tuple(scored))))
    return 0 if Score(tuple(scored)).is_good else 1


def _run_score(args: Namespace) -> int:
    from forkpoint.lab.record import score, score_json, score_text

    if args.kept:
        kept = sorted(path.parent for path in Path(args.kept).glob("*/case.toml"))
        folders = [folder for folder in kept if not args.names or folder.name in args.names]
    else:
        faults, settings = _chosen(args.names), _settings(args)
        folders = sorted(r.folder for r in _recorded(_possible(faults, settings), settings, args.parallel))
    if not folders:
        raise UsageError(f"no cases in {args.kept}: `forkpoint lab score --out DIR` writes them")
    result = score(map(_case_and_verdict, folders))
    print(score_json(result) if args.json else score_text(result))
    return 0 if result.is_good else 1


def _run_collectives(args: Namespace) -> int:
    from forkpoint.lab.collectives.plan import MODULE, count_gpus, mesh_partitions, run_ranks, write_arguments
    from forkpoint.lab.record import find_torch

    check_outputs(args, "perfetto")
    asked = [*write_arguments(args), *(["--json"] if args.json else [])]
    asked += ["--perfetto", args.perfetto] if args.perfetto else []
    if args.script_only:
        backend = [] if args.backend == "auto" else ["--backend", args.backend]
        per_node = str(args.ranks or _FEW_RANKS) if args.backend == "gloo" else "gpu"
        print(shlex.join(["torchrun", "--nproc-per-node", per_node, "-m", MODULE, *backend, *asked]))
        return 0
    backend = _backend(find_torch(), args.backend)
    ranks = args.ranks or (max(count_gpus(), _FEW_RANKS) if backend == "nccl" else _FEW_RANKS)
    list(mesh_partitions(args.mesh, ranks))
    with _stop_on_sigterm():
        return run_ranks(ranks, ["--backend", backend, *asked])


def _chosen(names: Sequence[str]) -> "list[Fault]":
    from forkpoint.lab.fault import FAULTS

    by_name = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name) or "`forkpoint lab list` lists them"
            raise UsageError(f"the lab has no fault {name}: {hint}")
    return [by_name[name] for name in names] or list(FAULTS)


def _settings(args: Namespace) -> "LabSettings":
    from tempfile import gettempdir

    from forkpoint.lab.ranks import LabSettings
    from forkpoint.lab.record import find_torch

    backend = _backend(find_torch(), args.backend)
    nccl = backend == "nccl"
    return LabSettings(
        backend=backend,
        out=args.out or Path(gettempdir()) / "forkpoint-lab",
        pg_timeout=_NCCL_TIMEOUT_S if nccl else _GLOO_TIMEOUT_S,
        linger=_NCCL_LINGER_S if nccl else _GLOO_LINGER_S,
    )


def _backend(here: "TorchHere", asked: str) -> "Backend":
    if asked == "gloo" or (asked == "auto" and not here.nccl):
        return "gloo"
    if not here.nccl:
        raise UsageError(f"torch {here.version} finds no GPU for NCCL here: use --backend gloo")
    return "nccl"


def _possible(faults: "Sequence[Fault]", settings: "LabSettings") -> "list[Fault]":
    """The faults that the backend supports; prints the others."""
    for fault in faults:
        if settings.backend not in fault.backends:
            say(f"{fault.name} needs {' or '.join(fault.backends)}: left out")
    possible = [fault for fault in faults if settings.backend in fault.backends]
    if not possible:
        raise UsageError(f"nothing to run on {settings.backend}")
    return possible


def _recorded(faults: "Sequence[Fault]", settings: "LabSettings", parallel: int) -> "Iterator[RecordedFault]":
    """Yields each fault when it is done. No rank is left running, however this ends."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from forkpoint.lab.record import record

    with _stop_on_sigterm(), ThreadPoolExecutor(parallel) as pool:
        try:
            running = [pool.submit(record, fault, settings) for fault in faults]
            say(f"running {len(faults)} on {settings.backend}, about 20 s each")
            for done, job in enumerate(as_completed(running), 1):
                recorded = job.result()
                how = f"{recorded.seconds:.0f} s, {recorded.dumps} dumps"
                say(f"{done}/{len(faults)} {recorded.fault.name}: {how}")
                yield recorded
        except BaseException:
            settings.cancelled.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _stop_on_sigterm() -> Generator[None]:
    """SIGTERM acts like Ctrl-C: running jobs are ended first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _diagnosed(recorded: "RecordedFault", *, html: str | None) -> "Scored":
    from forkpoint.lab.fault import read_case
    from forkpoint.lab.record import Scored, mark

    case = read_case(recorded.folder)
    verdict = _diagnose(case, picture=bool(html))
    if html:
        from forkpoint.report.page import render_html

        write_file(html, [render_html(verdict)])
    return Scored(case.name, case.truth, verdict, mark(case.truth, verdict))


def _case_and_verdict(folder: Path) -> "tuple[CaseFolder, Verdict]":
    from forkpoint.lab.fault import read_case

    case = read_case(folder)
    return case, _diagnose(case, picture=False)


def _diagnose(case: "CaseFolder", *, picture: bool) -> "Verdict":
    from forkpoint.evidence import read
    from forkpoint.pipeline import diagnose

    return diagnose(read([str(case.capture)]), [str(case.source)], picture=picture)


def _add_arguments(parser: ArgumentParser) -> None:
    parsers = parser.add_subparsers(metavar="list|run|score|collectives", required=True)
    listing = parsers.add_parser("list", help="list the faults", description="List every fault of the lab.")
    _add_json(listing)
    listing.set_defaults(lab=_run_list)

    run = parsers.add_parser("run", help="break a job and diagnose it", description="Run faults one after the other.")
    run.add_argument("names", nargs="+", metavar="NAME", help="a fault, from `forkpoint lab list`")
    _add_run_arguments(run)
    run.add_argument("--html", metavar="FILE", help="also write the report as one file for a browser")
    run.set_defaults(lab=_run_faults)

    score = parsers.add_parser("score", help="count how often the diagnosis is right", description="Run all faults.")
    score.add_argument("names", nargs="*", metavar="NAME", help="only these")
    _add_run_arguments(score)
    score.add_argument(
        "--parallel", type=count, default=1, metavar="N", help="number of jobs to run at a time (default: 1)"
    )
    score.add_argument(
        "--from", dest="kept", type=directory, metavar="DIR", help="run nothing: diagnose the cases in DIR"
    )
    score.set_defaults(lab=_run_score)
    _add_collectives(
        parsers.add_parser("collectives", help="check and time every collective", description=_COLLECTIVES)
    )


def _add_collectives(parser: ArgumentParser) -> None:
    from forkpoint.lab.collectives.plan import add_plan_arguments

    parser.add_argument("--ranks", type=count, metavar="N", help="processes to start here (default: one per GPU, or 4)")
    _add_backend(parser)
    parser.add_argument(
        "--script-only", action="store_true", help="start nothing: print the command for the job's own launcher"
    )
    add_plan_arguments(parser)
    parser.add_argument("--perfetto", metavar="FILE", help="also write a trace of all ranks for ui.perfetto.dev")
    parser.add_argument("--json", action="store_true", help="print JSON (schema forkpoint.collectives/1)")
    parser.set_defaults(lab=_run_collectives)


def _add_backend(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=("auto", "gloo", "nccl"),
        default="auto",
        help="auto: nccl if there is a GPU, otherwise gloo",
    )


def _add_run_arguments(parser: ArgumentParser) -> None:
    _add_backend(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep captures, sources and truths here (default: a temporary folder)"
    )
    _add_json(parser)


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON (schema forkpoint.lab/1)")


COMMAND = Command("lab", "break a small real job on purpose and diagnose it", _DESCRIPTION, _add_arguments, run)
