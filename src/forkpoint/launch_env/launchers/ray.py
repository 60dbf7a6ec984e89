"""Ray: workers do not inherit the driver's shell; variables go into the runtime environment."""

import json
from collections.abc import Sequence

from forkpoint.launch_env.launchers.launcher import Launcher
from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting


def adds(_release: Release | None) -> tuple[Setting, ...]:
    return (Setting("RAY_DEDUP_LOGS", "0", "Ray folds equal lines of ranks into one; set it for the driver as well"),)


def render(settings: Sequence[Setting], folder: str) -> str:
    lines = [
        "# in the driver, before ray.init; and in its shell: export RAY_DEDUP_LOGS=0",
        "import os, time",
        f'dumps = os.path.join({json.dumps(folder)}, time.strftime("%Y%m%d-%H%M%S"))',
        "os.makedirs(dumps)  # on a file system that all nodes share",
        "runtime_env = {",
        '    "env_vars": {',
    ]
    for setting in settings:
        value = f'f"{{dumps}}/{setting.value}"' if setting.in_folder else json.dumps(setting.value)
        lines.append(f'        "{setting.name}": {value},  # {setting.why}')
    lines += ["    }", "}", "ray.init(runtime_env=runtime_env)"]
    return "\n".join(lines)


LAUNCHER = Launcher("ray", adds, render)
