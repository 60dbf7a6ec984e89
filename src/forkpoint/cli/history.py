"""`forkpoint history`: stored incidents. Seen before, which forks, which nodes, hours lost."""

import os
import re
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkpoint.cli.destinations import STORE_VARIABLE
from forkpoint.cli.options import Command, count
from forkpoint.cli.output import STDOUT, check_outputs, needing_extra, say, write_file
from forkpoint.errors import UsageError
from forkpoint.report.escape import escape, json_text

if TYPE_CHECKING:
    from forkpoint.history.nodes import NodeOdds
    from forkpoint.history.queries import Filters, ListedIncident
    from forkpoint.history.store import Store

_DESCRIPTION = """\
Incidents that diagnose, run, watch, attach and the guard stored with --store.

  forkpoint history                    newest first
  forkpoint history show ID            one of them; --json prints its verdict
  forkpoint history resolve ID --note TEXT --commit C   how it was resolved
  forkpoint history forks              grouped by the place where ranks diverged
  forkpoint history nodes              hosts that are suspects more often than by
                                       chance, and what would confirm it
  forkpoint history delete ID
  forkpoint history prune --older-than 180d
  forkpoint history --html FILE        a page: over time, forks, nodes, hours lost

The store is a SQLite file or postgresql://user@host/database; a password comes
from the environment (PGPASSWORD, ~/.pgpass). An ID may be cut to 4 characters.
Only the store is changed; no node is drained. docs/history.md

Needs more packages: pip install 'forkpoint[history]'
"""

SCHEMA = "forkpoint.history/1"
_UNITS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,6})([hdw])")
_SHORT = 8


def run(args: Namespace) -> int:
    action = _ACTIONS[args.action or "list"]
    if args.action in _OF_ONE and not args.id:
        raise UsageError(
            f"forkpoint history {args.action} ID: give the id of an incident (forkpoint history lists them)"
        )
    if args.id and args.action not in _OF_ONE:
        raise UsageError(f"{args.id}: forkpoint history {args.action or ''} takes no id")
    if args.html == STDOUT:
        raise UsageError("--html writes a file; name one")
    check_outputs(args, "html")
    with _opened(args) as store:
        return _write_page(store, args) if args.html is not None else action(store, args)


@contextmanager
def _opened(args: Namespace) -> "Generator[Store]":
    with needing_extra("history", "history"):
        from forkpoint.history.store import open_store
    store = open_store(args.store or os.environ.get(STORE_VARIABLE) or str(default_store()), create=False)
    try:
        yield store
    finally:
        store.close()


def default_store() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
    return Path(base) / "forkpoint" / "history.sqlite"


def _filters(args: Namespace) -> "Filters":
    from forkpoint.history.queries import Filters

    since = int(time.time()) - args.since if args.since else None
    return Filters(since, args.cause, args.job, args.host, args.fork)


def _print_listing(kind: str, rows: Sequence[object], line: Callable[[Any], str], nothing: str, args: Namespace) -> int:
    """`kind`: the name of the list in JSON. `line`: one row as text."""
    if args.json:
        print(json_text({"schema": SCHEMA, kind: rows}))
    elif args.csv:
        _print_csv(rows)
    else:
        print("\n".join(map(line, rows)) or nothing)
    return 0


def _print_csv(rows: Sequence[object]) -> None:
    import csv

    import msgspec

    flat = [_flat(msgspec.to_builtins(row)) for row in rows]
    if flat:
        writer = csv.DictWriter(sys.stdout, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def _flat(row: dict[str, Any], front: str = "") -> dict[str, object]:
    """Flattens nested tables; cells cannot start a formula in a spreadsheet or control a terminal."""
    told: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            told |= _flat(value, f"{front}{name}_")
        else:
            told[f"{front}{name}"] = _cell(value)
    return told


def _cell(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    shown = escape(value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def _list(store: "Store", args: Namespace) -> int:
    from forkpoint.history.queries import list_incidents

    rows = list_incidents(store, _filters(args), args.limit)
    return _print_listing("incidents", rows, _line, "no matching incident", args)


def _line(incident: "ListedIncident") -> str:
    from forkpoint.history.queries import day

    marks = [f"{incident.gpu_hours:.1f} GPU h" if incident.gpu_hours is not None else "", incident.job or ""]
    marks += ["resolved" if incident.resolved_at is not None else ""]
    told = ", ".join(mark for mark in marks if mark)
    return escape(
        f"{day(incident.at)} {incident.id[:_SHORT]} {incident.cause}: {incident.headline}"
        + (f" ({told})" if told else "")
    )


def _forks(store: "Store", args: Namespace) -> int:
    from forkpoint.history.queries import RecurringFork, day, top_forks

    def line(fork: RecurringFork) -> str:
        cost = f", {fork.gpu_hours:.1f} GPU h" if fork.gpu_hours else ""
        jobs = f" in {fork.jobs} {'job' if fork.jobs == 1 else 'jobs'}" if fork.jobs else ""
        times = (
            f"{'once' if fork.count == 1 else f'{fork.count} times'}{jobs}, {day(fork.first)} to {day(fork.last)}{cost}"
        )
        return escape(f"{fork.fingerprint} {fork.cause}: {fork.fork} ({times}, {fork.resolved} resolved)")

    rows = top_forks(store, _filters(args), args.limit)
    return _print_listing("forks", rows, line, "no matching fork", args)


def _nodes(store: "Store", args: Namespace) -> int:
    from forkpoint.history.nodes import weigh
    from forkpoint.history.queries import host_exposures

    rows = weigh(host_exposures(store))[: args.limit]
    nothing = "no host is a suspect in an incident that the code alone does not explain"
    return _print_listing("nodes", rows, _node, nothing, args)


def _node(node: "NodeOdds") -> str:
    from forkpoint.history.nodes import say_odds, to_confirm

    best = node.best
    told = f"{node.name}: suspect in {best.suspected} of {node.took_part} distinct incidents it took part in"
    told += f", {best.expected:.1f} expected; by chance {say_odds(best.odds)}"
    confirm = [f"    {line}" for line in to_confirm(node)] if node.is_notable else []
    return "\n".join(map(escape, [told, *confirm]))


def _show(store: "Store", args: Namespace) -> int:
    from forkpoint.history.queries import (
        count_attempts,
        describe_resolution,
        describe_seen,
        find_incident,
        read_document,
        seen_before,
        suspect_places,
    )

    found = find_incident(store, args.id)
    if args.json:
        print(read_document(store, found.id))
        return 0
    suspected = suspect_places(store, found.id)
    places = [f"{host}{f' GPU {_numbers(gpus)}' if gpus else ''}" for host, gpus in suspected.items()]
    attempts = count_attempts(store, found.run) if found.run else 0
    facts = {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.at)),
        "cause": f"{found.cause}, confidence {found.confidence:.2f}, {found.action}",
        "suspects": f"ranks {_numbers(found.suspects)} of {found.world}" if found.suspects else "",
        "hosts": ", ".join(places),
        "job": ", ".join(part for part in (found.job, found.user, found.commit) if part),
        "run": f"{found.run}, attempt {found.attempt} ({attempts} with an incident)" if found.run else "",
        "lost": f"{found.gpu_hours:.2f} GPU hours" if found.gpu_hours is not None else "unknown",
        "fork": f"{found.fingerprint} {found.fork}" if found.fingerprint else "unknown: no user code in the evidence",
        "resolved": describe_resolution(found),
    }
    print(escape(f"{found.id} {found.headline}"))
    for name, text in facts.items():
        if text:
            print(f"{name:10}{escape(text)}")
    earlier = seen_before(store, found.fingerprint, found.id) if found.fingerprint else []
    for line in describe_seen(earlier, len(earlier))[1:]:
        print(f"{'same fork':10}{line}")
    return 0


def _numbers(numbers: Sequence[int]) -> str:
    from forkpoint.model.world import format_ranks

    return format_ranks(numbers, 8)


def _resolve(store: "Store", args: Namespace) -> int:
    from forkpoint.history.queries import find_incident

    if not args.note and not args.commit:
        raise UsageError("give how it was resolved: --note TEXT, --commit COMMIT, or both")
    found = find_incident(store, args.id)
    store.resolve(found.id, args.note or "", args.commit)
    say(f"{found.id} is resolved")
    return 0


def _delete(store: "Store", args: Namespace) -> int:
    from forkpoint.history.queries import find_incident

    found = find_incident(store, args.id)
    store.delete(found.id)
    say(f"{found.id} is deleted")
    return 0


def _prune(store: "Store", args: Namespace) -> int:
    if args.older_than is None:
        raise UsageError("give an age: --older-than 180d (h, d or w)")
    gone = store.prune(int(time.time()) - args.older_than)
    say(f"{gone} incidents are deleted")
    return 0


def _write_page(store: "Store", args: Namespace) -> int:
    from forkpoint.history.page import read_overview, render_page

    write_file(args.html, [render_page(read_overview(store, _filters(args)))])
    say(f"written: {args.html}")
    return 0


_ACTIONS: dict[str, "Callable[[Store, Namespace], int]"] = {
    "list": _list,
    "show": _show,
    "resolve": _resolve,
    "forks": _forks,
    "nodes": _nodes,
    "delete": _delete,
    "prune": _prune,
}
_OF_ONE = ("show", "resolve", "delete")


def _duration(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ArgumentTypeError("must be a number with h, d or w: 12h, 90d, 26w")
    return int(found[1]) * _UNITS[found[2]]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=tuple(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument("id", nargs="?", metavar="ID", help="id of an incident, for show, resolve and delete")
    parser.add_argument(
        "--store",
        metavar="URL",
        help=f"a SQLite file or postgresql://... (default: {STORE_VARIABLE}, else {_DEFAULT})",
    )
    parser.add_argument("--since", type=_duration, metavar="AGE", help="no older than this: 12h, 90d, 26w")
    parser.add_argument("--cause", metavar="CAUSE", help="only this cause")
    parser.add_argument("--job", metavar="NAME", help="only this job or run")
    parser.add_argument("--host", metavar="HOST", help="only with a suspect on this host")
    parser.add_argument("--fork", metavar="FINGERPRINT", help="only at this fork")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="at most N (default: 50)")
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--json", action="store_true", help=f"print JSON (schema {SCHEMA}; with show, the verdict)")
    told.add_argument("--csv", action="store_true", help="print CSV")
    told.add_argument("--html", metavar="FILE", help="write a page for a browser; it needs no network")
    parser.add_argument("--note", metavar="TEXT", help="with resolve: how")
    parser.add_argument("--commit", metavar="COMMIT", help="with resolve: by which change")
    parser.add_argument("--older-than", type=_duration, metavar="AGE", help="with prune: 180d")


_DEFAULT = "~/.local/share/forkpoint/history.sqlite"

COMMAND = Command(
    "history", "stored incidents: seen before, forks, nodes, hours lost", _DESCRIPTION, _add_arguments, run
)
