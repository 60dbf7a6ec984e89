"""Report -> SARIF 2.1.0, within what GitHub code scanning takes.

Its limits on a whole run: 25,000 results, of which it keeps 5,000; 10 MB compressed. Those on parts: report/sarif_parts.py.
"""

import gzip
import inspect
from collections.abc import Sequence

from forkpoint.lint.catalogue import AnyRule, all_rules
from forkpoint.lint.render.fingerprints import LineHashes
from forkpoint.lint.render.markdown import render_rule
from forkpoint.lint.report import Report
from forkpoint.lint.violation import Related, Violation
from forkpoint.report.sarif_parts import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_RELATED,
    Row,
    notification,
    place,
    plain,
    render_run,
)
from forkpoint.source import Note

MAX_RESULTS = 25_000
MAX_KEPT = 5_000
MAX_GZIP_BYTES = 10_000_000
MAX_NOTIFICATIONS = 100
"""No limit is stated for them; more than these nobody reads."""


def render_sarif(report: Report) -> str:
    """One ASCII document. Where it had to leave results out, a notification in it says how many."""
    # Those that are sure first: what is cut is cut from the end.
    ordered = sorted(report.violations, key=lambda violation: violation.advisory)[:MAX_RESULTS]
    while True:
        document = _document(report, ordered)
        if not ordered or len(gzip.compress(document.encode("ascii"), compresslevel=6)) <= MAX_GZIP_BYTES:
            return document
        ordered = ordered[: len(ordered) // 2]


def _document(report: Report, shown: Sequence[Violation]) -> str:
    rules = all_rules()
    index = {rule.code: number for number, rule in enumerate(rules)}
    hashes = LineHashes()
    return render_run(
        rules=[_rule(rule) for rule in rules],
        results=[_result(violation, index[violation.rule], hashes) for violation in shown],
        notifications=_notifications(report, len(shown)),
    )


def _rule(rule: AnyRule) -> Row:
    doc = inspect.cleandoc(rule.doc)
    return {
        "id": rule.code[:MAX_NAME],
        "name": rule.code.title().replace("-", "")[:MAX_NAME],
        "shortDescription": {"text": rule.title[:MAX_DESCRIPTION]},
        "fullDescription": {"text": doc[:MAX_DESCRIPTION]},
        "help": {"text": doc, "markdown": render_rule(rule)},
        "defaultConfiguration": {"level": _level(advisory=rule.advisory)},
        "properties": {
            "tags": ["correctness", "distributed"],
            "precision": "medium" if rule.advisory else "high",
            "problem.severity": "recommendation" if rule.advisory else "warning",
        },
    }


def _result(violation: Violation, rule_index: int, hashes: LineHashes) -> Row:
    related = violation.related[:MAX_RELATED]
    row: Row = {
        "ruleId": violation.rule,
        "ruleIndex": rule_index,
        "level": _level(advisory=violation.advisory),
        "message": {"text": _message(violation, related)},
        "locations": [
            place(
                violation.file,
                {
                    "startLine": violation.line,
                    "startColumn": violation.column,
                    "endLine": max(violation.line, violation.end_line),
                },
                logicalLocations=[{"fullyQualifiedName": violation.function}],
            )
        ],
    }
    if related:
        row["relatedLocations"] = [_related(item, number) for number, item in enumerate(related, 1)]
    fingerprint = hashes.of(violation.file, violation.line)
    if fingerprint is not None:
        row["partialFingerprints"] = {"primaryLocationLineHash": fingerprint}
    return row


def _related(related: Related, number: int) -> Row:
    return place(related.file, {"startLine": related.line}, id=number, message={"text": plain(related.says)})


def _message(violation: Violation, related: Sequence[Related]) -> str:
    """The first sentence stands alone in lists. `[text](1)` links to a related location."""
    parts = [plain(violation.message)]
    if violation.condition is not None:
        parts.append(f"Decided by: {plain(violation.condition)}")
    if violation.why is not None:
        parts.append(plain(violation.why))
    parts += [f"[{plain(item.says) or 'see'}]({number})" for number, item in enumerate(related, 1)]
    return "\n".join(parts)


def _notifications(report: Report, shown: int) -> list[Row]:
    said: list[Row] = []
    found = len(report.violations)
    if shown < found:
        said.append(notification(f"{found - shown} of {found} results left out: code scanning takes no more"))
    if shown > MAX_KEPT:
        said.append(notification(f"GitHub code scanning keeps {MAX_KEPT} of these {shown} results"))
    if len(report.notes) > MAX_NOTIFICATIONS:
        said.append(notification(f"{len(report.notes) - MAX_NOTIFICATIONS} more notes than are listed here"))
    return said + [_note(note) for note in report.notes[:MAX_NOTIFICATIONS]]


def _note(note: Note) -> Row:
    return {"level": "note", "message": {"text": plain(note.text)}, "locations": [place(note.file)]}


def _level(*, advisory: bool) -> str:
    return "note" if advisory else "warning"
