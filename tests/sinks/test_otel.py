"""An OpenTelemetry event as a collector gets it: the real protobuf, decoded."""

import re

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install 'forkpoint[otel]'")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

import verdicts
from forkpoint.sinks.services.otel import EVENT, SINK
from forkpoint.sinks.sink import SinkOutcome, deliver
from sinks.stand_ins import Answer, notice_of, unused_address, web_service

PATIENCE_S = 300.0
TAKEN = Answer(body=ExportLogsServiceResponse().SerializeToString())


def test_a_collector_gets_an_event_with_all_that_the_verdict_says(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = notice_of(seen=("the same fork was seen once before",))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=key-0001")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pretrain")
    with web_service([Answer(503), TAKEN]) as service:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", service.url)
        outcome = deliver(SINK, notice, {"OTEL_EXPORTER_OTLP_ENDPOINT": service.url}, PATIENCE_S)

    assert outcome == SinkOutcome("otel")
    _, told = service.heard
    assert told.path.endswith("/v1/logs")
    assert told.headers["api-key"] == "key-0001"
    (resource,) = ExportLogsServiceRequest.FromString(told.body).resource_logs
    assert "pretrain" in str(resource.resource)
    ((record,),) = (scope.log_records for scope in resource.scope_logs)
    values = {one.key: one.value for one in record.attributes}
    assert (record.event_name, record.severity_text) == (EVENT, "ERROR")
    assert record.body.string_value == notice.title
    assert values["forkpoint.cause"].string_value == verdicts.FOUND.cause
    assert [one.int_value for one in values["forkpoint.suspects"].array_value.values] == list(notice.suspects)
    assert values["forkpoint.decided"].bool_value


def test_a_collector_that_refuses_or_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{unused_address()}")
    gone = deliver(SINK, notice_of(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, 2.0)
    with web_service([Answer(401)] * 9) as service:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", service.url)
        refused = deliver(SINK, notice_of(), {"OTEL_EXPORTER_OTLP_ENDPOINT": service.url}, 20.0)

    assert re.search("export(ing)? logs batch", str(gone.problem))  # which of its two sentences depends on its jitter
    assert "401" in str(refused.problem)
    assert "is set" in str(deliver(SINK, notice_of(), {}, 5.0).problem)
