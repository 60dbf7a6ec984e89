"""The services that can be notified."""

from typing import Final

from forkpoint.sinks.services import command, email, github, otel
from forkpoint.sinks.services.posted import PAGERDUTY, SLACK, TEAMS, WEBHOOK
from forkpoint.sinks.services.trackers import MLFLOW, WANDB
from forkpoint.sinks.sink import Sink

SINKS: Final[tuple[Sink, ...]] = (
    SLACK,
    TEAMS,
    PAGERDUTY,
    email.SINK,
    github.SINK,
    WEBHOOK,
    command.SINK,
    otel.SINK,
    MLFLOW,
    WANDB,
)
