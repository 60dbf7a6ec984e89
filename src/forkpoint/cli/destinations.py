"""Where verdicts go besides the terminal: `--store` keeps them, `--notify` sends them to services."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from forkpoint.cli.options import did_you_mean, seconds
from forkpoint.cli.output import say
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.live.children import NotifySettings, Sending
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict
    from forkpoint.sinks.notice import Notice
    from forkpoint.sinks.sink import SinkOutcome

# ---------------------------------------------------------------------------------------------------------------------
# The store, and what it knows about a verdict.

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


# ---------------------------------------------------------------------------------------------------------------------
# Services that are notified.

NOTIFY_VARIABLE = "FORKPOINT_NOTIFY"
NAMES = ("slack", "teams", "pagerduty", "email", "github", "webhook", "command", "otel", "mlflow", "wandb")
"""The names in `sinks/services`, repeated here so that help need not import them. tests/sinks/test_options.py compares."""
_LIMIT_S = 30.0


def add_notify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--notify",
        action="append",
        default=[],
        type=_service,
        metavar="SERVICE",
        help=f"send the verdict to {', '.join(NAMES)}; addresses and keys come only from the environment "
        f"(repeatable; default: {NOTIFY_VARIABLE}; see docs/sinks.md)",
    )
    parser.add_argument(
        "--notify-dry-run", action="store_true", help="print on standard error what would be sent, and send nothing"
    )
    parser.add_argument(
        "--notify-undecided",
        action="store_true",
        help="also page and open issues for inconclusive verdicts; these accuse nobody",
    )
    parser.add_argument(
        "--notify-timeout",
        type=seconds,
        default=_LIMIT_S,
        metavar="S",
        help="time limit for all services together, with retries (default: 30)",
    )


def _service(name: str) -> str:
    if name not in NAMES:
        raise ArgumentTypeError(
            f"{name} is not one of {', '.join(NAMES)}; {did_you_mean(name, NAMES) or ''}".rstrip("; ")
        )
    return name


def notify_settings(args: Namespace) -> "NotifySettings | None":
    """None: no service is notified. Raises UsageError early if a service lacks a setting or a package."""
    told = os.environ.get(NOTIFY_VARIABLE, "")
    if not args.notify and not told.strip(", "):
        if args.notify_dry_run:
            raise UsageError("--notify-dry-run shows what --notify would send: give a service")
        return None
    from forkpoint.live.children import NotifySettings, split_sinks

    names = tuple(dict.fromkeys(args.notify)) or split_sinks(told)
    if unknown := [name for name in names if name not in NAMES]:
        raise UsageError(f"{NOTIFY_VARIABLE}: {unknown[0]} is not one of {', '.join(NAMES)}")
    if not args.notify_dry_run:
        _check_services(names)
    return NotifySettings(names, args.notify_timeout, args.notify_undecided)


def _check_services(names: Sequence[str]) -> None:
    from forkpoint.sinks.services import SINKS
    from forkpoint.sinks.sink import describe_missing

    for sink in (sink for sink in SINKS if sink.name in names):
        if missing := describe_missing(sink, os.environ):
            raise UsageError(f"--notify {sink.name}: {missing}; set it in the environment, see docs/sinks.md")
        if sink.package and not _is_installed(sink.package):
            raise UsageError(f"--notify {sink.name} needs {sink.package}: pip install 'forkpoint[{sink.name}]'")


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


class Telling:
    """Notices being sent, by separate processes while the command goes on."""

    def __init__(self, settings: "NotifySettings | None", *, dry_run: bool = False) -> None:
        self._settings = settings
        self._dry_run = dry_run
        self._sendings: list[Sending] = []

    @classmethod
    def of(cls, args: Namespace) -> "Telling":
        return cls(notify_settings(args), dry_run=args.notify_dry_run)

    @property
    def is_on(self) -> bool:
        return self._settings is not None

    def begin(self, notice: "Notice") -> None:
        from forkpoint.live.children import Sending

        if self._settings is None or notice.is_healthy:
            return
        if self._dry_run:
            print(_rendered(notice, self._settings), file=sys.stderr, flush=True)
            return
        try:
            self._sendings.append(Sending(notice, self._settings))
        except OSError as error:
            say(f"no service was notified: no process could be started ({error.strerror})")

    def arrived(self) -> "list[SinkOutcome]":
        """Outcomes of those that are done by now."""
        done = [(sending, found) for sending in self._sendings if (found := sending.outcomes()) is not None]
        for sending, _ in done:
            sending.end()
            self._sendings.remove(sending)
        return [outcome for _, found in done for outcome in found]

    def wait(self) -> "list[SinkOutcome]":
        """Waits for the rest, at most --notify-timeout."""
        try:
            return [outcome for sending in self._sendings for outcome in sending.wait()]
        finally:
            self.end()

    def end(self) -> None:
        for sending in self._sendings:
            sending.end()
        self._sendings.clear()


def say_outcomes(outcomes: "Sequence[SinkOutcome]", *, quiet: bool = False) -> None:
    """One line each; with --quiet only failures."""
    told = [outcome for outcome in outcomes if outcome.problem or not quiet]
    if told:
        from forkpoint.sinks.sink import describe_outcome

        for outcome in told:
            say(describe_outcome(outcome))


def make_notice(  # noqa: PLR0913 - what each command knows about the job
    verdict: "Verdict",
    capture: "Capture | None",
    seen: Sequence[str],
    *,
    told_by: str,
    job: str | None = None,
    evidence: str | None = None,
    embed_source: bool = False,
) -> "Notice":
    import socket

    from forkpoint.sinks.describe import describe_notice
    from forkpoint.sinks.notice import NoticeOrigin

    origin = NoticeOrigin(f"forkpoint {told_by}", socket.gethostname(), job, evidence)
    return describe_notice(verdict, capture, origin, seen, embed_source=embed_source)


def _rendered(notice: "Notice", settings: "NotifySettings") -> str:
    from forkpoint.sinks.worker import SendTask, render_all

    return render_all(SendTask(settings.sinks, notice, settings.limit_s, settings.undecided), os.environ)
