"""Tags and summary of the training's W&B run, by W&B's own client and its variables. Works offline (`WANDB_MODE=offline`)."""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from forkpoint.sinks.notice import Notice, run_tags
from forkpoint.sinks.sink import Sink, Variable

_RUN = Variable("WANDB_RUN_ID", "of the training", required=True)
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


def render(notice: Notice, environ: Mapping[str, str]) -> str:
    told = {"run": environ.get(_RUN.name), "tags": list(_labels(notice)), "summary": run_tags(notice)}
    return json.dumps(told, indent=2)


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    wandb: Any = import_module("wandb")
    offline = environ.get(_MODE.name) == "offline"
    settings = wandb.Settings(init_timeout=max(1, int(limit_s)), **_QUIET)
    run = wandb.init(
        id=environ[_RUN.name],
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


SINK = Sink(
    "wandb",
    "tags and summary of the W&B run",
    (_RUN, _PROJECT, _ENTITY, _KEY, _MODE, _DIR),
    render,
    send,
    package="wandb",
)
