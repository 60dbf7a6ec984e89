"""Checks, their results, the report as JSON (schema `forkpoint.doctor/1`), and the comparison of nodes."""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from forkpoint.doctor.system import System
from forkpoint.errors import UnreadableInput
from forkpoint.report.escape import json_text

# ---------------------------------------------------------------------------------------------------------------------
# A check, and its result.


class CheckStatus(StrEnum):
    OK = "ok"
    BAD = "bad"
    SKIPPED = "skipped"
    """It could not be checked, or there is nothing to check. Never the same as ok."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    status: CheckStatus
    says: str
    """One sentence: what was seen; for a skipped check, why."""
    fix: str | None = None
    """What to do, or the command that shows more. The doctor itself changes nothing."""
    details: tuple[tuple[str, str], ...] = ()
    """Values that should be equal on all nodes of a job, and counters to compare with an earlier report."""


def ok(says: str, *details: tuple[str, str]) -> CheckResult:
    return CheckResult(CheckStatus.OK, says, details=details)


def bad(says: str, fix: str, *details: tuple[str, str]) -> CheckResult:
    return CheckResult(CheckStatus.BAD, says, fix, details)


def skipped(why: str, fix: str | None = None) -> CheckResult:
    return CheckResult(CheckStatus.SKIPPED, why, fix)


def judged(trouble: Sequence[str], fix: str, fine: str, *details: tuple[str, str]) -> CheckResult:
    """Bad with all that is wrong, else ok."""
    return bad("; ".join(trouble), fix, *details) if trouble else ok(fine, *details)


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    name: str
    """As a person types it: `gpu-ecc`."""
    title: str
    """What is checked, in a few words."""
    why: str
    """What goes wrong in a job if it is bad."""
    look: Callable[[System], CheckResult]
    broken: Mapping[str, Any]
    """What makes this check fail on a test machine; `broken.py` applies it."""


_CHECKS = Path(__file__).with_name("checks.toml")


def check(name: str, look: Callable[[System], CheckResult]) -> DoctorCheck:
    """With what `checks.toml` says of the check of this name."""
    return DoctorCheck(name=name, look=look, **_told()[name])


@cache
def _told() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_CHECKS.read_text("utf-8"))


# ---------------------------------------------------------------------------------------------------------------------
# The results of all checks on one machine.


@dataclass(frozen=True, slots=True)
class Judged:
    check: str
    title: str
    result: CheckResult


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """A check that gave no result: it raised or did not end. That is a bug of the doctor, or a machine on which reads block
    forever.
    """

    check: str
    why: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    host: str
    time: float
    """Seconds since the epoch, by this machine's clock."""
    job: int | None
    injected: str | None
    """The check for which the machine was broken on purpose: then nothing here is true of the real machine."""
    results: tuple[Judged, ...]
    failures: tuple[CheckFailure, ...]

    @property
    def bad(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.results if one.result.status is CheckStatus.BAD)

    @property
    def exit_code(self) -> int:
        """As Node Problem Detector reads it: 0 nothing bad, 1 something is, 2 unknown."""
        return 1 if self.bad else 2 if self.failures else 0


# ---------------------------------------------------------------------------------------------------------------------
# A doctor's report as JSON: written by `forkpoint doctor --json`, read again from this node or another.
#
# Schema `forkpoint.doctor/1` (`doctor.schema.json` beside this file). Like any file, it may contain anything when it is read.

SCHEMA = "forkpoint.doctor/1"
CHECKS_SCHEMA = "forkpoint.doctor-checks/1"
_REPORT_LIMIT = 8 << 20
"""A report of hundreds of checks is a fraction of this."""
_NEXT = "write it with `forkpoint doctor --json`"


class _Row(msgspec.Struct, frozen=True):
    check: str
    title: str
    status: str
    says: str
    fix: str | None
    details: dict[str, str]


class _Written(msgspec.Struct, frozen=True, tag_field="schema", tag=SCHEMA):
    host: str
    time: float
    job: int | None
    injected: str | None
    exit_code: int
    results: tuple[_Row, ...]
    failures: tuple[CheckFailure, ...]


@dataclass(frozen=True, slots=True)
class PastResult:
    """What one check said when the report was written."""

    status: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Document:
    file: str
    host: str
    time: float
    results: Mapping[str, PastResult]


def render_json(report: DoctorReport) -> str:
    rows = tuple(_row(one) for one in report.results)
    return json_text(
        _Written(
            report.host, round(report.time, 3), report.job, report.injected, report.exit_code, rows, report.failures
        )
    )


def _row(one: Judged) -> _Row:
    result = one.result
    return _Row(one.check, one.title, result.status, result.says, result.fix, dict(result.details))


def render_checks_json(checks: Iterable[DoctorCheck]) -> str:
    listed = [{"check": check.name, "title": check.title, "why": check.why} for check in checks]
    return json_text({"schema": CHECKS_SCHEMA, "checks": listed})


def read_document(path: str) -> Document:
    """Raises UnreadableInput for anything but the report of a real machine."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_REPORT_LIMIT + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _REPORT_LIMIT:
        raise UnreadableInput(f"{path}: too long for a doctor's report; {_NEXT}")
    try:
        written = msgspec.json.decode(data, type=_Written)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: is not a doctor's report ({SCHEMA}); {_NEXT}") from error
    if written.injected is not None:
        raise UnreadableInput(f"{path}: the report of a machine broken on purpose (--inject); give real ones")
    results = {row.check: PastResult(row.status, row.details) for row in written.results}
    return Document(path, written.host, written.time, results)


# ---------------------------------------------------------------------------------------------------------------------
# Which node differs from the others, and what has changed on one node since an earlier report.

COMPARISON_SCHEMA = "forkpoint.doctor-compare/1"
COUNTER = "count "
"""Prefix of details that count since boot: they differ between nodes, and on one node only their growth matters."""
_STATUS = "status"
_ABSENT = "not reported"


@dataclass(frozen=True, slots=True)
class NodeDifference:
    check: str
    what: str
    """`status`, or a detail of the check."""
    usual: str | None
    """The most common value; None if two values are equally common."""
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """Each value with its nodes, the rarest first."""


@dataclass(frozen=True, slots=True)
class Comparison:
    nodes: tuple[str, ...]
    differences: tuple[NodeDifference, ...]


@dataclass(frozen=True, slots=True)
class NodeChange:
    check: str
    what: str
    before: str
    now: str


def compare(documents: Sequence[Document]) -> Comparison:
    """In the order of the first report's checks. The order of the documents does not affect which node is odd."""
    nodes = _node_names(documents)
    by_node = dict(zip(nodes, documents, strict=True))
    checks = dict.fromkeys(check for document in documents for check in document.results)
    differences: list[NodeDifference] = []
    for check in checks:
        told = {node: document.results.get(check) for node, document in by_node.items()}
        differences += _differences(check, told)
    return Comparison(nodes, tuple(differences))


def changes(earlier: Document, report: DoctorReport) -> tuple[NodeChange, ...]:
    """What has changed since an earlier report of this node, counters included."""
    found: list[NodeChange] = []
    for one in report.results:
        before = earlier.results.get(one.check)
        if before is None:
            continue
        now = PastResult(one.result.status, dict(one.result.details))
        values = ((what, _value(before, what), _value(now, what)) for what in _subjects((before, now)))
        found += [NodeChange(one.check, what, old, new) for what, old, new in values if old != new]
    return tuple(found)


def _node_names(documents: Sequence[Document]) -> tuple[str, ...]:
    """Host names; with the file if two reports have the same."""
    count = Counter(document.host for document in documents)
    return tuple(
        document.host if count[document.host] == 1 else f"{document.host} ({document.file})" for document in documents
    )


def _differences(check: str, told: dict[str, PastResult | None]) -> Iterator[NodeDifference]:
    for what in _subjects([each for each in told.values() if each]):
        if what.startswith(COUNTER):
            continue
        nodes: defaultdict[str, list[str]] = defaultdict(list)
        for node, each in told.items():
            nodes[_value(each, what)].append(node)
        if len(nodes) > 1:
            yield _difference(check, what, nodes)


def _difference(check: str, what: str, nodes: dict[str, list[str]]) -> NodeDifference:
    ordered = sorted(nodes.items(), key=lambda item: (len(item[1]), item[0]))
    (_, second), (most, first) = ordered[-2:]
    usual = most if len(first) > len(second) else None
    return NodeDifference(check, what, usual, tuple((value, tuple(sorted(hosts))) for value, hosts in ordered))


def _subjects(told: Sequence[PastResult]) -> dict[str, None]:
    return dict.fromkeys((_STATUS, *(what for each in told for what in each.details)))


def _value(told: PastResult | None, what: str) -> str:
    if told is None:
        return _ABSENT
    return told.status if what == _STATUS else told.details.get(what, _ABSENT)


def render_comparison_json(comparison: Comparison) -> str:
    differences = [
        {
            "check": difference.check,
            "what": difference.what,
            "usual": difference.usual,
            "values": [{"value": value, "nodes": nodes} for value, nodes in difference.values],
        }
        for difference in comparison.differences
    ]
    return json_text({"schema": COMPARISON_SCHEMA, "nodes": comparison.nodes, "differences": differences})
