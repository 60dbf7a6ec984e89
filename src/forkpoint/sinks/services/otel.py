"""An OpenTelemetry event (a log record with a name) over OTLP/HTTP, by OpenTelemetry's own SDK and its variables."""

import json
import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, SinkRefused, Variable

_ENDPOINT = Variable("OTEL_EXPORTER_OTLP_ENDPOINT", "of the collector, such as http://localhost:4318")
_LOGS_ENDPOINT = Variable("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "of the collector's logs, if it is another")
_HEADERS = Variable("OTEL_EXPORTER_OTLP_HEADERS", "name=value,... for a collector that asks who sends", secret=True)
_SERVICE = Variable("OTEL_SERVICE_NAME", "what the job is called there")

EVENT = "forkpoint.verdict"
_SHARE = 0.8
"""Share of the time limit for the exporter with its own retries."""


def attributes(notice: Notice) -> dict[str, str | bool | float | list[int] | list[str]]:
    told: dict[str, str | bool | float | list[int] | list[str]] = {
        "forkpoint.cause": notice.cause,
        "forkpoint.action": notice.action,
        "forkpoint.decided": notice.is_decided,
        "forkpoint.confidence": notice.confidence,
        "forkpoint.suspects": list(notice.suspects[:1000]),
        "forkpoint.fork": notice.fork,
        "forkpoint.summary": notice.summary,
        "forkpoint.sites": list(notice.sites),
        "forkpoint.readings": list(notice.readings),
        "forkpoint.seen_before": list(notice.seen),
        "host.name": notice.origin.host,
    }
    named = {"forkpoint.job": notice.origin.job, "forkpoint.evidence": notice.origin.evidence}
    return told | {name: value for name, value in named.items() if value}


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    told = {"event_name": EVENT, "severity": _severity(notice), "body": notice.title, "attributes": attributes(notice)}
    return json.dumps(told, indent=2)


def send(notice: Notice, _environ: Mapping[str, str], limit_s: float) -> None:
    """The exporter retries by itself within its timeout, and logs errors instead of raising them."""
    logs, sdk = import_module("opentelemetry._logs"), import_module("opentelemetry.sdk._logs")
    export = import_module("opentelemetry.sdk._logs.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http._log_exporter")
    complaints = _Complaints()
    logging.getLogger("opentelemetry").addHandler(complaints)
    exporter = _Watched(otlp.OTLPLogExporter(timeout=_SHARE * limit_s))
    provider = sdk.LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(export.SimpleLogRecordProcessor(exporter))
    severity = logs.SeverityNumber[_severity(notice)]
    provider.get_logger("forkpoint").emit(
        event_name=EVENT,
        severity_number=severity,
        severity_text=severity.name,
        body=notice.title,
        attributes=attributes(notice),
    )
    logging.getLogger("opentelemetry").removeHandler(complaints)
    if not exporter.is_taken:
        raise SinkRefused(complaints.first or "the collector did not accept it")


def _severity(notice: Notice) -> str:
    return "ERROR" if notice.is_decided else "WARN"


class _Watched:
    """Wraps the exporter to see whether it succeeded: the SDK does not report that."""

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self.is_taken = False

    def export(self, batch: Sequence[object]) -> object:
        result = self._exporter.export(batch)
        self.is_taken = result.name == "SUCCESS"
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Complaints(logging.Handler):
    """Keeps the first message, which says what is wrong; later ones only repeat it."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


SINK = Sink(
    "otel",
    "an OpenTelemetry event to a collector",
    (_ENDPOINT, _LOGS_ENDPOINT, _HEADERS, _SERVICE),
    render,
    send,
    any_of=(_ENDPOINT.name, _LOGS_ENDPOINT.name),
    package="opentelemetry.exporter.otlp.proto.http",
)
