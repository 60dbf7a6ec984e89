"""Which node is not like the others, and what has changed on one node since an earlier look."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.doctor.document import Document, PastResult
from forkpoint.doctor.report import DoctorReport
from forkpoint.report.json_text import json_text

COMPARISON_SCHEMA = "forkpoint.doctor-compare/1"
COUNTER = "count "
"""How details begin that count since boot: they differ between nodes, and on one node only their growth matters."""
_STATUS = "status"
_ABSENT = "not told"


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
    """In the order of the first report's checks. The order of the documents does not matter for who is odd."""
    nodes = _node_names(documents)
    by_node = dict(zip(nodes, documents, strict=True))
    checks = dict.fromkeys(check for document in documents for check in document.results)
    differences: list[NodeDifference] = []
    for check in checks:
        told = {node: document.results.get(check) for node, document in by_node.items()}
        differences += _differences(check, told)
    return Comparison(nodes, tuple(differences))


def changes(earlier: Document, report: DoctorReport) -> tuple[NodeChange, ...]:
    """What an earlier look at this node saw otherwise, counters included."""
    found: list[NodeChange] = []
    for judged in report.results:
        before = earlier.results.get(judged.check)
        if before is None:
            continue
        now = PastResult(judged.result.status, dict(judged.result.details))
        values = ((what, _value(before, what), _value(now, what)) for what in _subjects((before, now)))
        found += [NodeChange(judged.check, what, old, new) for what, old, new in values if old != new]
    return tuple(found)


def _node_names(documents: Sequence[Document]) -> tuple[str, ...]:
    """Host names; with the file where two reports carry the same."""
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
