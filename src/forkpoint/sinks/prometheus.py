"""Outcome of a run -> a file for node_exporter's textfile collector: few series, none per rank. Needs the extra `watch`."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from forkpoint.live.diagnosing import Decision
from forkpoint.run.outcome import Attempt


def render_metrics(attempts: Sequence[Attempt], decision: Decision) -> str:
    registry = CollectorRegistry()

    def gauge(name: str, says: str) -> Gauge:
        return Gauge(f"forkpoint_run_{name}", says, registry=registry)

    gauge("exit_code", "What forkpoint run ended with: 93, 75, 76 or the command's own").set(decision.code)
    gauge("attempts", "Attempts of the last run").set(len(attempts))
    gauge("seconds", "How long they took").set(sum(attempt.ended.seconds for attempt in attempts))
    gauge("ended_timestamp_seconds", "When it ended").set_to_current_time()
    found = attempts[-1].found
    if found is not None:
        gauge("suspects", "Ranks that the verdict of the last attempt names").set(len(found.suspects))
        verdict = Gauge("forkpoint_run_verdict", "How sure it is", ["cause", "action"], registry=registry)
        verdict.labels(found.cause, found.action).set(found.confidence)
    return generate_latest(registry).decode()
