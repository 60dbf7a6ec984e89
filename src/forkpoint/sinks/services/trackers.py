"""The training's run in a service that tracks experiments: MLflow and W&B, by their own clients and variables."""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable

_MAX_VALUE = 4000
"""MLflow takes 5,000 characters and, before 2.1, five hundred."""


def run_tags(notice: Notice) -> dict[str, str]:
    told = {
        "forkpoint.cause": notice.cause,
        "forkpoint.decided": "yes" if notice.is_decided else "no",
        "forkpoint.headline": notice.title,
        "forkpoint.action": notice.action,
        "forkpoint.confidence": f"{notice.confidence:.2f}",
        "forkpoint.suspects": notice.ranks or "none singled out",
        "forkpoint.where": "; ".join(notice.sites),
        "forkpoint.maybe": "; ".join(notice.readings),
        "forkpoint.seen": "; ".join(notice.seen),
        "forkpoint.fork": notice.fork,
        "forkpoint.at": notice.at,
        "forkpoint.evidence": notice.origin.evidence or "",
    }
    return {name: value[:_MAX_VALUE] for name, value in told.items() if value}


# ---------------------------------------------------------------------------------------------------------------------
# MLflow: tags.

_URI = Variable("MLFLOW_TRACKING_URI", "of the tracking server", required=True)
_MLFLOW_RUN = Variable("MLFLOW_RUN_ID", "of the training", required=True)
_USER = Variable("MLFLOW_TRACKING_USERNAME", "for a server that asks")
_PASSWORD = Variable("MLFLOW_TRACKING_PASSWORD", "for a server that asks", secret=True)
_TOKEN = Variable("MLFLOW_TRACKING_TOKEN", "for a server that asks", secret=True)

_TRY_S = 10.0


def _render_mlflow(notice: Notice, environ: Mapping[str, str]) -> str:
    return json.dumps({"run_id": environ.get(_MLFLOW_RUN.name), "tags": run_tags(notice)}, indent=2)


def _send_mlflow(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    """Limits the client's own retries, which take minutes by default. Only the sending process has this environment."""
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(max(1, int(min(_TRY_S, limit_s))))
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "2"
    client = import_module("mlflow.tracking").MlflowClient(environ[_URI.name])
    tag = import_module("mlflow.entities").RunTag
    client.log_batch(environ[_MLFLOW_RUN.name], tags=[tag(name, value) for name, value in run_tags(notice).items()])


MLFLOW: Final = Sink(
    "mlflow",
    "tags of the MLflow run",
    (_URI, _MLFLOW_RUN, _USER, _PASSWORD, _TOKEN),
    _render_mlflow,
    _send_mlflow,
    package="mlflow",
)


# ---------------------------------------------------------------------------------------------------------------------
# W&B: tags and summary. Works offline (`WANDB_MODE=offline`).

_WANDB_RUN = Variable("WANDB_RUN_ID", "of the training", required=True)
_PROJECT = Variable("WANDB_PROJECT", "of the training", required=True)
_ENTITY = Variable("WANDB_ENTITY", "of the training")
_KEY = Variable("WANDB_API_KEY", "of the account", secret=True)
_MODE = Variable("WANDB_MODE", "`offline` writes files for `wandb sync`")
_DIR = Variable("WANDB_DIR", "where files go")

_QUIET = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_update_finish_state": False,
    "x_primary": False,
}
"""The run belongs to the training: we neither finish it nor record this machine's metrics."""


def _render_wandb(notice: Notice, environ: Mapping[str, str]) -> str:
    told = {"run": environ.get(_WANDB_RUN.name), "tags": list(_labels(notice)), "summary": run_tags(notice)}
    return json.dumps(told, indent=2)


def _send_wandb(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    wandb: Any = import_module("wandb")
    offline = environ.get(_MODE.name) == "offline"
    settings = wandb.Settings(init_timeout=max(1, int(limit_s)), **_QUIET)
    run = wandb.init(
        id=environ[_WANDB_RUN.name],
        project=environ[_PROJECT.name],
        entity=environ.get(_ENTITY.name) or None,
        dir=environ.get(_DIR.name) or os.getcwd(),  # noqa: PTH109 - a text is what it takes
        mode="offline" if offline else "shared",
        resume="allow" if offline else None,
        settings=settings,
    )
    run.tags = (*(run.tags or ()), *(label for label in _labels(notice) if label not in (run.tags or ())))
    for name, value in run_tags(notice).items():
        run.summary[name] = value
    run.finish()


def _labels(notice: Notice) -> tuple[str, ...]:
    """Only a few, for filtering in W&B; the rest is in the summary."""
    decided = f"forkpoint:{notice.cause}" if notice.is_decided else "forkpoint:not-decided"
    return ("forkpoint", decided)


WANDB: Final = Sink(
    "wandb",
    "tags and summary of the W&B run",
    (_WANDB_RUN, _PROJECT, _ENTITY, _KEY, _MODE, _DIR),
    _render_wandb,
    _send_wandb,
    package="wandb",
)
