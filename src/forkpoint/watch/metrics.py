"""What a Prometheus server scrapes: few series, none per rank. Needs the extra `watch`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from forkpoint.errors import UsageError
from forkpoint.watch.sight import Sight, WatchState

_LOOPBACK = "127.0.0.1"


class WatchMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._state = Gauge("forkpoint_watch_state", "1 for the state of the job", ["state"], registry=self.registry)
        self._expected = Gauge("forkpoint_ranks_expected", "Ranks of the job, 0 if not known", registry=self.registry)
        self._answering = Gauge("forkpoint_ranks_answering", "Ranks read in the last look", registry=self.registry)
        self._still = Gauge(
            "forkpoint_seconds_since_progress",
            "For how long no rank that can be read has moved",
            registry=self.registry,
        )
        self._alarms = Counter("forkpoint_alarms", "Incidents found", ["cause"], registry=self.registry)
        self._errors = Counter(
            "forkpoint_source_errors", "Notes of what a source could not get", ["source"], registry=self.registry
        )
        self._last_look = Gauge(
            "forkpoint_watch_last_look_timestamp_seconds", "When it was last looked", registry=self.registry
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


def serve_metrics(metrics: WatchMetrics, port: int) -> int:
    """The port it listens at (0: any that is free), from a thread that ends with the process. Raises UsageError."""
    try:
        server, _ = start_http_server(port, addr=_LOOPBACK, registry=metrics.registry)
    except OSError as error:
        raise UsageError(f"--metrics {port}: {error.strerror}; give another port") from error
    return server.server_port
