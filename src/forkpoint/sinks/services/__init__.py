"""The services that can be notified, one file each."""

from typing import Final

from forkpoint.sinks.services import (
    command,
    email,
    github,
    mlflow,
    otel,
    pagerduty,
    slack,
    teams,
    wandb,
    webhook,
)
from forkpoint.sinks.sink import Sink

SINKS: Final[tuple[Sink, ...]] = (
    slack.SINK,
    teams.SINK,
    pagerduty.SINK,
    email.SINK,
    github.SINK,
    webhook.SINK,
    command.SINK,
    otel.SINK,
    mlflow.SINK,
    wandb.SINK,
)
