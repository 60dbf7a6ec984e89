"""What a launcher is to `forkpoint env`."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting


@dataclass(frozen=True, slots=True)
class Launcher:
    name: str
    adds: Callable[[Release | None], tuple[Setting, ...]]
    """What to set under this launcher beside what is wanted everywhere."""
    render: Callable[[Sequence[Setting], str], str]
    """Settings and the folder below which each job has its own -> what to paste, with a comment for each."""


def export_lines(settings: Sequence[Setting], folder: str, job: str) -> list[str]:
    """For a shell script: a folder per job, which torch does not make, and one line per setting."""
    lines = [f"JOB={job}", f'DUMPS={shlex.quote(folder)}/"$JOB"', 'mkdir -p "$DUMPS"']
    shown = [(f"export {setting.name}={_value(setting)}", setting.why) for setting in settings]
    column = max(len(line) for line, _ in shown)
    return [*lines, *(f"{line:<{column}}  # {why}" for line, why in shown)]


def _value(setting: Setting) -> str:
    return f'"$DUMPS/{setting.value}"' if setting.in_folder else shlex.quote(setting.value)
