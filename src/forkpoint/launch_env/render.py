"""Settings -> JSON, schema `forkpoint.env/1`."""

import json
from collections.abc import Sequence

from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting

SCHEMA = "forkpoint.env/1"


def render_json(launcher: str, release: Release | None, folder: str, settings: Sequence[Setting]) -> str:
    """`$JOB` in a value is a placeholder for the job's name: each job gets its own folder."""
    rows = [
        {
            "name": setting.name,
            "value": f"{folder.rstrip('/')}/$JOB/{setting.value}" if setting.in_folder else setting.value,
            "why": setting.why,
        }
        for setting in settings
    ]
    document = {
        "schema": SCHEMA,
        "launcher": launcher,
        "torch": str(release) if release else None,
        "folder": folder,
        "settings": rows,
    }
    return json.dumps(document, indent=2)
