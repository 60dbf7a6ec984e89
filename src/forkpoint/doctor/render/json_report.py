"""A report -> JSON, schema `forkpoint.doctor/1` (`doctor.schema.json` beside this file)."""

import json
from collections.abc import Iterable
from typing import Any

from forkpoint.doctor.check import Check
from forkpoint.doctor.compare import Comparison
from forkpoint.doctor.report import Judged, Report

SCHEMA = "forkpoint.doctor/1"
COMPARISON_SCHEMA = "forkpoint.doctor-compare/1"
CHECKS_SCHEMA = "forkpoint.doctor-checks/1"


def render_json(report: Report) -> str:
    """One ASCII document."""
    return _dump(
        {
            "schema": SCHEMA,
            "host": report.host,
            "time": round(report.time, 3),
            "job": report.job,
            "injected": report.injected,
            "exit_code": report.exit_code,
            "results": [_result(judged) for judged in report.results],
            "failures": [{"check": failure.check, "why": failure.why} for failure in report.failures],
        }
    )


def render_comparison_json(comparison: Comparison) -> str:
    return _dump(
        {
            "schema": COMPARISON_SCHEMA,
            "nodes": list(comparison.nodes),
            "differences": [
                {
                    "check": difference.check,
                    "what": difference.what,
                    "usual": difference.usual,
                    "values": [{"value": value, "nodes": list(nodes)} for value, nodes in difference.values],
                }
                for difference in comparison.differences
            ],
        }
    )


def render_checks_json(checks: Iterable[Check]) -> str:
    listed = [{"check": check.name, "title": check.title, "why": check.why} for check in checks]
    return _dump({"schema": CHECKS_SCHEMA, "checks": listed})


def _result(judged: Judged) -> dict[str, Any]:
    return {
        "check": judged.check,
        "title": judged.title,
        "status": judged.result.status,
        "says": judged.result.says,
        "fix": judged.result.fix,
        "details": dict(judged.result.details),
    }


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")
