"""`forkpoint attach`: a job that hangs now. Asks its ranks, takes their stacks, and diagnoses the result."""

import re
import shutil
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forkpoint.cli.destinations import add_keeping_arguments, add_notify_arguments, notify_settings
from forkpoint.cli.diagnose import add_output_arguments, diagnose_paths
from forkpoint.cli.options import Command, add_found_source_argument, seconds, split_names
from forkpoint.cli.output import exit_code, import_numpy, say
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.gather.attach.folder import Attached, HostAnswer
    from forkpoint.gather.attach.jobs import LiveJob
    from forkpoint.gather.attach.look import RankSeen
    from forkpoint.gather.folder import EvidenceFolder

_DESCRIPTION = """\
A job hangs now: find its ranks on this machine, ask each for its recorder, take
the stacks of all threads, watch for two seconds who moves, and diagnose that.

Without arguments the ranks are found by RANK and WORLD_SIZE in their
environment. If several jobs run, they are listed; --job or pids choose one.

  recorder  torch's debug server, the guard (FORKPOINT=1) or torch's dump pipe,
            whichever is on; none of them stops the process
  stacks    from these too, else py-spy (pip install 'forkpoint[attach]'), which
            stops a process for milliseconds; --no-stacks leaves that out
  also      /proc, NVML, the ranks' logs and the kernel's messages since they began

Nothing else is sent to the job, and it is not changed. If something could not
be asked, the output says which permission that needs. docs/attach.md

exit codes: as forkpoint diagnose; 0 also if the job moves
"""

_SLURM_JOB = re.compile(r"\d{1,12}(?:_\d{1,9})?")
_SINGLE_LINES = 16
"""Ranks that get a line each; more are counted."""


def run(args: Namespace) -> int:
    ways = [name for name in ("pids", "hosts", "debug_server") if getattr(args, name)]
    if len(ways) > 1 or (args.job and ways and ways != ["hosts"]):
        raise UsageError("give one of: pids of this machine, --job, --hosts (with or without --job), --debug-server")
    if not args.send:  # otherwise the machine that asked notifies
        notify_settings(args)
    import_numpy()
    with _evidence_folder(args.keep) as folder:
        attached = _ask_others(args, folder) or _ask_here(args, folder)
        if args.send:
            from forkpoint.gather.attach.folder import send

            send(folder.root, sys.stdout.buffer)
            return 0
        return _diagnose(args, attached, folder)


def _diagnose(args: Namespace, attached: "Attached", folder: "EvidenceFolder") -> int:
    from forkpoint.gather.attach.folder import with_attached

    if not args.quiet:
        for line in _summary(attached):
            say(line)
    verdict = diagnose_paths(
        [str(folder.root)],
        args,
        args.source,
        look=not args.no_source,
        finish=lambda _capture, found: with_attached(found, attached),
        told_by="attach",
    )
    if not args.quiet:
        say(f"kept: {folder.root}" if args.keep else "the evidence is deleted; --keep DIR keeps it")
    return exit_code(verdict)


@contextmanager
def _evidence_folder(keep: str | None) -> "Generator[EvidenceFolder]":
    from tempfile import TemporaryDirectory

    from forkpoint.gather.folder import CollectLimits, EvidenceFolder, Meter

    if keep:
        yield EvidenceFolder(keep, Meter(CollectLimits()))
        return
    with TemporaryDirectory(prefix="forkpoint-attach-") as temporary:
        yield EvidenceFolder(str(Path(temporary, "evidence")), Meter(CollectLimits()))


# ---------------------------------------------------------------------------------------------------------------------
# This machine.


def _ask_here(args: Namespace, folder: "EvidenceFolder") -> "Attached":
    from concurrent.futures import ThreadPoolExecutor
    from tempfile import TemporaryDirectory

    from forkpoint.gather.attach.folder import describe_seen, keep_seen, write_states
    from forkpoint.gather.attach.look import Looker
    from forkpoint.gather.attach.stacks import sample_gpus

    job = _find_job(args)
    if not args.quiet:
        say(job.described)
    tell = _RankLines(len(job.ranks), quiet=args.quiet)
    with TemporaryDirectory(prefix="forkpoint-attach-") as temporary, ThreadPoolExecutor(1) as beside:
        gpus = beside.submit(sample_gpus)
        seen = Looker(job, Path(temporary), stacks=args.stacks, tell=tell).look_around()
        attached = describe_seen(job, seen, gpus.result())
        notes = keep_seen(job, seen, folder)
    write_states(attached, folder.root)
    if not args.quiet:
        for note in notes:
            say(f"{note.place}: {note.text}")
    return attached


def _find_job(args: Namespace) -> "LiveJob":
    from forkpoint.gather.attach.jobs import choose_job, find_jobs, job_of_debug_server, job_of_pids
    from forkpoint.live.watch.sources.ask import parse_address

    if args.debug_server:
        return job_of_debug_server(parse_address(args.debug_server))
    return job_of_pids(args.pids) if args.pids else choose_job(find_jobs(), args.job)


class _RankLines:
    """Prints what each rank answered, as it answers."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total, self._on = total, not quiet

    def __call__(self, seen: "RankSeen") -> None:
        if self._on and self._total <= _SINGLE_LINES:
            got = [f"recorder by {seen.answer.way}"] if seen.answer.way else []
            got += [f"stacks by {seen.stacks_by}"] if seen.stacks_by else []
            say(f"rank {seen.answer.rank}: {', '.join(got) or 'no answer'}")


def _summary(attached: "Attached") -> list[str]:
    """What is missing, once per reason, and whether any rank moves."""
    from forkpoint.model.world import name_ranks

    why: dict[str, list[int]] = {}
    for rank in attached.ranks:
        for missing in rank.missing:
            why.setdefault(missing, []).append(rank.rank)
    lines = [f"{name_ranks(ranks)}: {missing}" for missing, ranks in why.items()]
    lines += [f"{name_ranks(attached.lost)}: the process is gone"] if attached.lost else []
    if attached.unseen:
        lines.append(
            f"{name_ranks(attached.unseen)}: not found on the machines asked; --hosts a,b or --job with a Slurm id asks others"
        )
    lines += attached.notes
    visible = [rank.rank for rank in attached.ranks if rank.visible]
    if attached.moved:
        lines.append(f"{name_ranks(attached.moved)} moved while watched")
    elif not visible:
        lines.append("without recorders and stacks it is unknown whether any rank moves")
    elif len(visible) < len(attached.ranks):
        lines.append(f"{name_ranks(visible)} did not move for {attached.still_s:.0f} s or longer")
    else:
        lines.append(f"no rank moved for {attached.still_s:.0f} s or longer")
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# Other machines.


def _ask_others(args: Namespace, folder: "EvidenceFolder") -> "Attached | None":
    """None: the job is on this machine."""
    from forkpoint.gather.attach.folder import ask_hosts, merge, write_states
    from forkpoint.gather.engines import ClusterReach, open_slurm, open_ssh

    if args.send or not (args.hosts or _is_elsewhere(args.job)):
        return None
    reach = ClusterReach(
        hosts=tuple(split_names(args.hosts)), job=args.job, python=args.node_python, node_timeout_s=args.node_timeout
    )
    engine = open_ssh(reach) if args.hosts else open_slurm(reach)
    answers = ask_hosts(engine, args.job or "", folder, stacks=args.stacks, tell=lambda one: _tell_host(one, args))
    parts = [answer.attached for answer in answers if answer.attached]
    notes = [f"{answer.host}: {note}" for answer in answers for note in answer.notes]
    notes += [engine.missing] if engine.missing else []
    if not parts:
        raise UsageError("no host has ranks that could be asked:", notes)
    attached = merge(parts, notes)
    write_states(attached, folder.root)
    return attached


def _is_elsewhere(job: str | None) -> bool:
    """A Slurm job that does not run on this machine alone."""
    from forkpoint.gather.attach.jobs import find_jobs

    if not job or not _SLURM_JOB.fullmatch(job):
        return False
    here = [found for found in find_jobs() if job in found.names]
    if not here:
        return shutil.which("squeue") is not None
    ranks = [rank for found in here for rank in found.ranks if rank.environ.get("SLURM_JOB_ID") == job]
    return bool(ranks) and len(ranks) < max(found.world_size for found in here)


def _tell_host(answer: "HostAnswer", args: Namespace) -> None:
    if not args.quiet:
        say(
            f"{answer.host}: {len(answer.attached.ranks)} ranks"
            if answer.attached
            else f"{answer.host}: no rank could be asked"
        )


def _process(text: str) -> tuple[int | None, int]:
    """`PID` or `RANK=PID`."""
    rank, equals, pid = text.rpartition("=")
    if not (pid.isascii() and pid.isdecimal()) or (equals and not (rank.isascii() and rank.isdecimal())):
        if Path(text).is_dir():
            raise ArgumentTypeError(f"{text} is a folder; to read what a job left, run forkpoint diagnose {text}")
        chosen = f"did you mean --job {Path(text).name}? It chooses a job by its script, port or id"
        raise ArgumentTypeError(f"{text}: must be PID, or RANK=PID; {chosen}")
    return (int(rank) if equals else None), int(pid)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pids",
        nargs="*",
        type=_process,
        metavar="PID",
        help="processes of the job, as PID or RANK=PID (default: found by their environment)",
    )
    parser.add_argument(
        "--job", metavar="NAME", help="choose one of several jobs: port, run id, script, Slurm's id or name"
    )
    parser.add_argument("--hosts", action="append", default=[], metavar="A,B", help="ask the ranks there, over ssh")
    parser.add_argument(
        "--debug-server",
        metavar="HOST:PORT",
        help="ask all ranks of this torch debug server, on any machine, of any user",
    )
    parser.add_argument(
        "--no-stacks", dest="stacks", action="store_false", help="stop no process, not even for milliseconds"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep the evidence in this new folder")
    add_found_source_argument(parser)
    add_output_arguments(parser)
    add_keeping_arguments(parser)
    add_notify_arguments(parser)
    parser.add_argument(
        "--node-python",
        default="python3",
        metavar="PYTHON",
        help="with --hosts: a Python on the hosts that has forkpoint",
    )
    parser.add_argument(
        "--node-timeout", type=seconds, default=60.0, metavar="S", help="with --hosts: how long to wait (default: 60)"
    )
    parser.add_argument("--send", action="store_true", help=SUPPRESS)


COMMAND = Command(
    "attach", "a job hangs now: ask its live ranks, take their stacks, diagnose", _DESCRIPTION, _add_arguments, run
)
