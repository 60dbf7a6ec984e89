"""`--store`: the options for storing verdicts, and what a store knows about a verdict."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from forkpoint.cli.output import say
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict

STORE_VARIABLE = "FORKPOINT_STORE"
_LABEL = f"{'seen':10}"


def add_store_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        help="store the incident, and say whether its fork was seen before: a SQLite file or postgresql://... "
        f"(default: {STORE_VARIABLE}; '' for none; see docs/history.md)",
    )


def add_keeping_arguments(parser: ArgumentParser) -> None:
    """For commands that run outside the job and do not have its environment."""
    add_store_argument(parser)
    parser.add_argument("--job-name", metavar="NAME", help="with --store or --notify: name of the job")
    parser.add_argument("--job-user", metavar="NAME", help="with --store: whose job it is")
    parser.add_argument(
        "--job-commit",
        metavar="COMMIT",
        help="with --store: commit of its source (default: the one checked out in --source)",
    )
    parser.add_argument(
        "--store-evidence",
        action="store_true",
        help="with --store: also store log texts and patches; secrets are masked either way",
    )


def store_of(args: Namespace) -> str | None:
    """None: nothing is stored."""
    given: str | None = args.store
    return (os.environ.get(STORE_VARIABLE) if given is None else given) or None


def keep_verdict(
    args: Namespace, capture: "Capture", verdict: "Verdict", source: Sequence[str] = ()
) -> tuple[str, ...]:
    """Stores the verdict. Returns lines about earlier incidents at the same fork; prints a failure on standard error."""
    store = store_of(args)
    if store is None:
        return ()
    from forkpoint.history.incident import JobFacts, describe_incident
    from forkpoint.history.keeping import keep
    from forkpoint.source.forge import commit_of

    commit = args.job_commit or (commit_of(source[0]) if source else None)
    job = JobFacts(args.job_name, args.job_user, commit)
    incident = describe_incident(verdict, capture, job, with_evidence=args.store_evidence)
    if incident is None:
        return ()
    kept = keep(store, incident)
    if kept.problem:
        say(kept.problem)
    return kept.seen


def print_seen(seen: Sequence[str], file: TextIO | None = None) -> None:
    """Prints them below a report, in its layout."""
    for place, line in enumerate(seen):
        print(f"{_LABEL if place == 0 else ' ' * len(_LABEL)}{escape(line)}", file=file, flush=True)
