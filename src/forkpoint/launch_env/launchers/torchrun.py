"""torchrun: workers inherit the shell's variables, except that it sets error handling and its own log files."""

from collections.abc import Sequence

from forkpoint.launch_env.launchers.launcher import Launcher, export_lines
from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting

_GRACE_SINCE = Release(2, 13)
"""The first release in which the variable was seen."""


def adds(release: Release | None) -> tuple[Setting, ...]:
    handling = Setting(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "torchrun sets 1, whose abort can block before the dump is out"
    )
    grace = Setting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90", "torchrun kills after 30 s; a dump may take a minute")
    return (handling, grace) if release is None or release >= _GRACE_SINCE else (handling,)


def render(settings: Sequence[Setting], folder: str) -> str:
    lines = [
        "# before torchrun, on every node; the same JOB on all of them",
        *export_lines(settings, folder, '"${SLURM_JOB_ID:-$(date +%Y%m%d-%H%M%S)}"'),
        "# one log per rank, which torchrun does not keep by itself:",
        '# torchrun --rdzv-id "$JOB" --log-dir "$DUMPS/logs" --tee 3 ...',
    ]
    return "\n".join(lines)


LAUNCHER = Launcher("torchrun", adds, render)
