"""Metrics for Prometheus, none of them per rank: `watch` serves them, `run` writes a textfile. Needs the extra `watch`."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server

from forkpoint.errors import UsageError
from forkpoint.live.children import Decision
from forkpoint.live.run.attempt import Attempt
from forkpoint.live.watch.rule import Sight, WatchState

LOOPBACK = "127.0.0.1"


class WatchMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._state = Gauge(
            "forkpoint_watch_state", "1 for the current state of the job", ["state"], registry=self.registry
        )
        self._expected = Gauge("forkpoint_ranks_expected", "Ranks of the job, 0 if not known", registry=self.registry)
        self._answering = Gauge("forkpoint_ranks_answering", "Ranks read in the last look", registry=self.registry)
        self._still = Gauge(
            "forkpoint_seconds_since_progress",
            "For how long no readable rank has moved",
            registry=self.registry,
        )
        self._alarms = Counter("forkpoint_alarms", "Incidents found", ["cause"], registry=self.registry)
        self._errors = Counter(
            "forkpoint_source_errors",
            "Notes about evidence that a source could not get",
            ["source"],
            registry=self.registry,
        )
        self._last_look = Gauge(
            "forkpoint_watch_last_look_timestamp_seconds", "When watch last looked", registry=self.registry
        )

    def update(self, sight: Sight) -> None:
        for state in WatchState:
            self._state.labels(state.value).set(state is sight.state)
        self._expected.set(sight.ranks_expected)
        self._answering.set(sight.ranks_answering)
        self._still.set(sight.still_s)
        self._last_look.set_to_current_time()
        for note in sight.notes:
            self._errors.labels(note.source).inc()
        if sight.is_alarm and sight.verdict:
            self._alarms.labels(sight.verdict.cause.value).inc()


def serve_metrics(metrics: WatchMetrics, port: int, address: str = LOOPBACK) -> int:
    """Serves from a daemon thread and returns its port. `port` 0: any free one. Raises UsageError."""
    try:
        server, _ = start_http_server(port, addr=address, registry=metrics.registry)
    except OSError as error:
        raise UsageError(f"--metrics {address}:{port}: {error.strerror}; give another port") from error
    return server.server_port


# ---------------------------------------------------------------------------------------------------------------------
# Outcome of a run -> a file for node_exporter's textfile collector.


def render_metrics(attempts: Sequence[Attempt], decision: Decision) -> str:
    registry = CollectorRegistry()

    def gauge(name: str, says: str) -> Gauge:
        return Gauge(f"forkpoint_run_{name}", says, registry=registry)

    gauge("exit_code", "Exit code of forkpoint run: 93, 75, 76 or the command's own").set(decision.code)
    gauge("attempts", "Attempts of the last run").set(len(attempts))
    gauge("seconds", "How long all attempts took").set(sum(attempt.ended.seconds for attempt in attempts))
    gauge("ended_timestamp_seconds", "When the run ended").set_to_current_time()
    found = attempts[-1].found
    if found is not None:
        gauge("suspects", "Ranks that the verdict of the last attempt names").set(len(found.suspects))
        verdict = Gauge("forkpoint_run_verdict", "Confidence of the verdict", ["cause", "action"], registry=registry)
        verdict.labels(found.cause, found.action).set(found.confidence)
    return generate_latest(registry).decode()
