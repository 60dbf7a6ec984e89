"""Report -> SARIF 2.1.0, within what GitHub code scanning takes.

Its limits on a whole run: 25,000 results, of which it keeps 5,000; 10 MB compressed. Those on parts: report/sarif_parts.py.
"""

import gzip
import inspect
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from forkpoint.lint.catalogue import AnyRule, all_rules
from forkpoint.lint.render.markdown import render_rule_markdown
from forkpoint.lint.rule import LintReport, Related, Violation
from forkpoint.report.sarif import MAX_DESCRIPTION, MAX_NAME, MAX_RELATED, Row, notification, place, plain, render_run
from forkpoint.source import SourceNote

MAX_RESULTS = 25_000
MAX_KEPT = 5_000
MAX_GZIP_BYTES = 10_000_000
MAX_NOTIFICATIONS = 100
"""GitHub states no limit for them; nobody reads more."""
_BLOCK = 100
_FACTOR = 37
_END = "\uffff"
_BLANKS = str.maketrans("", "", " \t")


class LineHashes:
    """Hashes by which GitHub recognises an alert again when lines above it move. Each file is read once.

    GitHub's upload action computes the same hash and warns if the file has another; other ways to upload need it here.
    """

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def of(self, file: str, line: int) -> str | None:
        """None if the file is gone or has become shorter."""
        if file not in self._files:
            self._files[file] = _hashes_in(file)
        hashes = self._files[file]
        return hashes[line - 1] if 0 < line <= len(hashes) else None


def render_sarif(report: LintReport) -> str:
    """One ASCII document. Where it had to leave results out, a notification in it says how many."""
    # Those that are sure first: what is cut is cut from the end.
    ordered = sorted(report.violations, key=lambda violation: violation.advisory)[:MAX_RESULTS]
    while True:
        document = _document(report, ordered)
        if not ordered or len(gzip.compress(document.encode("ascii"), compresslevel=6)) <= MAX_GZIP_BYTES:
            return document
        ordered = ordered[: len(ordered) // 2]


def _document(report: LintReport, shown: Sequence[Violation]) -> str:
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
        "help": {"text": doc, "markdown": render_rule_markdown(rule)},
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


def _notifications(report: LintReport, shown: int) -> list[Row]:
    said: list[Row] = []
    found = len(report.violations)
    if shown < found:
        said.append(notification(f"{found - shown} of {found} results left out: code scanning takes no more"))
    if shown > MAX_KEPT:
        said.append(notification(f"GitHub code scanning keeps {MAX_KEPT} of these {shown} results"))
    if len(report.notes) > MAX_NOTIFICATIONS:
        said.append(notification(f"{len(report.notes) - MAX_NOTIFICATIONS} more notes than are listed here"))
    return said + [_note(note) for note in report.notes[:MAX_NOTIFICATIONS]]


def _note(note: SourceNote) -> Row:
    return {"level": "note", "message": {"text": plain(note.text)}, "locations": [place(note.file)]}


def _level(*, advisory: bool) -> str:
    return "note" if advisory else "warning"


def line_hashes(text: str) -> list[str]:
    """As GitHub does it: a polynomial over the 100 characters from the start of the line, without blanks, and a counter
    for equal blocks.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").translate(_BLANKS).split("\n")
    whole = "\n".join(lines) + _END
    # GitHub counts in UTF-16 units, two for a character beyond the basic plane.
    units = whole.encode("utf-16-le", "surrogatepass") + b"\0\0" * _BLOCK
    seen: Counter[bytes] = Counter()
    hashes: list[str] = []
    start = 0
    for line in lines:
        block = units[start : start + 2 * _BLOCK]
        seen[block] += 1
        hashes.append(f"{_polynomial(block):x}:{seen[block]}")
        start += len(line.encode("utf-16-le", "surrogatepass")) + 2
    return hashes


def _polynomial(block: bytes) -> int:
    value = 0
    for at in range(0, len(block), 2):
        value = value * _FACTOR + block[at] + 256 * block[at + 1]
    return value & 0xFFFF_FFFF_FFFF_FFFF


def _hashes_in(file: str) -> list[str]:
    try:
        return line_hashes(Path(file).read_bytes().decode("utf-8", "replace"))
    except OSError:
        return []
