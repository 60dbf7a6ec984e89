"""Reports and comparisons -> plain text for a terminal, in which all text from machines is escaped; and metrics."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from forkpoint.doctor.report import (
    CheckStatus,
    Comparison,
    DoctorCheck,
    DoctorReport,
    Judged,
    NodeChange,
    NodeDifference,
)
from forkpoint.report.escape import escape

_ORDER = (CheckStatus.BAD, CheckStatus.OK, CheckStatus.SKIPPED)
_STATUS_WIDTH = 9
_SHOWN_NODES = 8


def render_text(report: DoctorReport, width: int) -> str:
    """Bad results first, with their fix; then ok; then skipped, with the reason."""
    column = max((len(judged.check) for judged in report.results), default=0) + 2
    lines = [_heading(report)]
    lines += [line for judged in _in_order(report.results) for line in _result(judged, column, width)]
    for failure in report.failures:
        lines += _row("unknown", failure.check, failure.why, column, width)
    lines.append(_count(report))
    return "\n".join(lines)


def _heading(report: DoctorReport) -> str:
    about = "settings as this command sees them" if report.job is None else f"settings of process {report.job}"
    heading = f"{escape(report.host)}, {about}"
    if report.injected is not None:
        return (
            f"INJECTED: {report.injected} was made bad in a simulation, to show that it can fail. Not true of {heading}"
        )
    return heading


def _in_order(results: Iterable[Judged]) -> list[Judged]:
    return sorted(results, key=lambda judged: _ORDER.index(judged.result.status))


def _result(judged: Judged, column: int, width: int) -> Iterator[str]:
    result = judged.result
    yield from _row(result.status, judged.check, result.says, column, width)
    if result.fix is not None:
        # People copy commands from here, so a command stays on one line.
        yield " " * (_STATUS_WIDTH + column) + f"fix: {escape(result.fix)}"


def _row(status: str, check: str, says: str, column: int, width: int) -> list[str]:
    indent = " " * (_STATUS_WIDTH + column)
    start = f"{status:<{_STATUS_WIDTH}}{check:<{column}}"
    room = max(width, len(indent) + 30)
    return textwrap.wrap(
        escape(says),
        room,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _count(report: DoctorReport) -> str:
    statuses = [judged.result.status for judged in report.results]
    counted = [f"{statuses.count(status)} {status}" for status in _ORDER]
    if report.failures:
        counted.append(f"{len(report.failures)} unknown")
    return ", ".join(counted)


def render_list(checks: Sequence[DoctorCheck]) -> str:
    column = max(len(check.name) for check in checks)
    return "\n".join(f"{check.name:<{column}}  {check.title}" for check in checks)


def render_changes(changes: Sequence[NodeChange], since: str) -> str:
    if not changes:
        return f"nothing has changed since {escape(since)}"
    lines = [f"since {escape(since)}:"]
    lines += [f"  {each.check}: {escape(each.what)} {escape(each.before)} -> {escape(each.now)}" for each in changes]
    return "\n".join(lines)


def render_comparison(comparison: Comparison) -> str:
    nodes = len(comparison.nodes)
    if not comparison.differences:
        return f"{nodes} nodes compared: no difference"
    lines = [f"{nodes} nodes compared: {len(comparison.differences)} differences"]
    lines += [line for difference in comparison.differences for line in _difference(difference)]
    return "\n".join(lines)


def _difference(difference: NodeDifference) -> Iterator[str]:
    yield f"{difference.check}: {escape(difference.what)}{'' if difference.usual else ' (no majority)'}"
    for value, nodes in difference.values:
        most = "  (most)" if value == difference.usual else ""
        yield f"  {escape(value)}: {_nodes(nodes)}{most}"


def _nodes(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(map(escape, nodes[:_SHOWN_NODES]))
    return shown if len(nodes) <= _SHOWN_NODES else f"{shown} and {len(nodes) - _SHOWN_NODES} more"


# ---------------------------------------------------------------------------------------------------------------------
# A report -> a file for node_exporter's textfile collector. Needs the extra `watch`.


def render_metrics(report: DoctorReport) -> str:
    """One series per check and status, 1 for the current status: alerts use `status="bad"`, and a skipped check is not
    mistaken for one that passed.
    """
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415 - the extra `watch`

    registry = CollectorRegistry()
    checks = Gauge(
        "forkpoint_doctor_check", "1 for the current status of the check", ["check", "status"], registry=registry
    )
    for judged in report.results:
        for status in CheckStatus:
            checks.labels(judged.check, status).set(judged.result.status is status)
    for failure in report.failures:
        checks.labels(failure.check, "unknown").set(1)
    Gauge("forkpoint_doctor_time_seconds", "When the checks ran", registry=registry).set(report.time)
    Gauge("forkpoint_doctor_exit_code", "0 nothing bad, 1 bad, 2 unknown", registry=registry).set(report.exit_code)
    return generate_latest(registry).decode()
