"""`forkpoint explain`: what a code or a pasted log line means, from the knowledge base."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forkpoint.cli.options import Command
from forkpoint.cli.output import terminal_width
from forkpoint.errors import UsageError

if TYPE_CHECKING:
    from forkpoint.knowledge.base import Entry

_DESCRIPTION = """\
Say what a code or a log line means, what it does not mean, what to do, and the
source of that. Nothing is looked up outside this machine.

CODE is a cause (divergent-path), an Xid (79, xid79), an SXid (sxid12028), a
result of NCCL (ncclRemoteError), an environment variable (NCCL_TIMEOUT), a rule
of forkpoint lint, or a line pasted from a log, in quotes; its prefix may stay.

exit codes:
  0  found
  2  wrong usage, or nothing known; similar codes are suggested
"""

_KINDS = ("cause", "xid", "sxid", "nccl", "variable", "line", "known")
_ALL = "all"
_COMFORTABLE_WIDTH = 100
_MAX_ECHO = 60


def run(args: Namespace) -> int:
    query = " ".join(args.code)
    if bool(query.strip()) == bool(args.list):
        raise UsageError(
            "give a code, or a line of a log in quotes: forkpoint explain 79; --list lists all codes (see forkpoint explain --help)"
        )
    if args.list:
        _print_list(args.list, as_json=args.json)
    else:
        _print_entries(query, as_json=args.json)
    return 0


def _print_entries(query: str, *, as_json: bool) -> None:
    from forkpoint.knowledge.base import find
    from forkpoint.report.explain import render_entries_json, render_entries_text

    found = find(query)
    if not found:
        _print_rule(query, as_json=as_json)
        return
    if as_json:
        print(render_entries_json(query, found))
    else:
        print(render_entries_text(found, terminal_width(_COMFORTABLE_WIDTH)))


def _print_rule(query: str, *, as_json: bool) -> None:
    """Rules of `forkpoint lint` document themselves; they are not in the knowledge base."""
    from forkpoint.lint.catalogue import rule_named
    from forkpoint.lint.render.json_report import render_rules_json
    from forkpoint.lint.render.text import render_rule_text

    rule = rule_named(query.strip())
    if rule is None:
        raise UsageError(_unknown(query))
    print(render_rules_json([rule]) if as_json else render_rule_text(rule))


def _print_list(which: str, *, as_json: bool) -> None:
    from forkpoint.knowledge.base import EntryKind, entries
    from forkpoint.report.explain import render_entries_json, render_list

    kinds = tuple(EntryKind) if which == _ALL else (EntryKind(which),)
    listed: Sequence[Entry] = [entry for kind in kinds for entry in entries(kind)]
    if as_json:
        print(render_entries_json(None, listed))
    else:
        print(render_list(listed))


def _unknown(query: str) -> str:
    from forkpoint.knowledge.base import suggest, suggest_by_words
    from forkpoint.lint.catalogue import near_codes

    words = query.strip()
    shown = words if len(words) <= _MAX_ECHO else f"{words[:_MAX_ECHO]}..."
    near = (*suggest(query), *near_codes(words)) or suggest_by_words(words)
    hint = f"did you mean {', '.join(near)}?" if near else "no code is similar."
    lists = "`forkpoint explain --list` lists all codes, `forkpoint lint --list` the rules"
    job = "" if near else "; about a job: `forkpoint attach` if it hangs now, `forkpoint diagnose DIR` if it failed"
    return f"nothing known about {shown!r}; {hint} {lists}{job}"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("code", nargs="*", metavar="CODE", help="what to explain; several words are one query")
    parser.add_argument(
        "--list",
        nargs="?",
        const=_ALL,
        choices=(_ALL, *_KINDS),
        metavar="KIND",
        help=f"list entries: {', '.join(_KINDS)}; without KIND, all. Rules: forkpoint lint --list",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON (schema forkpoint.explain/1; for a rule, forkpoint.rules/1)"
    )


COMMAND = Command(
    "explain",
    "say what a cause, Xid, NCCL error, variable, log line or lint rule means",
    _DESCRIPTION,
    _add_arguments,
    run,
)
