"""Tags of the training's MLflow run, by MLflow's own client and its variables."""

import json
import os
from collections.abc import Mapping
from importlib import import_module

from forkpoint.sinks.notice import Notice, run_tags
from forkpoint.sinks.sink import Sink, Variable

_URI = Variable("MLFLOW_TRACKING_URI", "of the tracking server", required=True)
_RUN = Variable("MLFLOW_RUN_ID", "of the training", required=True)
_USER = Variable("MLFLOW_TRACKING_USERNAME", "for a server that asks")
_PASSWORD = Variable("MLFLOW_TRACKING_PASSWORD", "for a server that asks", secret=True)
_TOKEN = Variable("MLFLOW_TRACKING_TOKEN", "for a server that asks", secret=True)

_TRY_S = 10.0


def render(notice: Notice, environ: Mapping[str, str]) -> str:
    return json.dumps({"run_id": environ.get(_RUN.name), "tags": run_tags(notice)}, indent=2)


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    """Limits the client's own retries, which take minutes by default. Only the sending process has this environment."""
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(max(1, int(min(_TRY_S, limit_s))))
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "2"
    client = import_module("mlflow.tracking").MlflowClient(environ[_URI.name])
    tag = import_module("mlflow.entities").RunTag
    client.log_batch(environ[_RUN.name], tags=[tag(name, value) for name, value in run_tags(notice).items()])


SINK = Sink("mlflow", "tags of the MLflow run", (_URI, _RUN, _USER, _PASSWORD, _TOKEN), render, send, package="mlflow")
