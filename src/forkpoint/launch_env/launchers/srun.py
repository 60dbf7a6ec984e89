"""srun (Slurm): tasks inherit the batch script's variables unless --export says otherwise."""

from collections.abc import Sequence

from forkpoint.launch_env.launchers.launcher import Launcher, export_lines
from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting


def adds(_release: Release | None) -> tuple[Setting, ...]:
    return ()


def render(settings: Sequence[Setting], folder: str) -> str:
    lines = [
        "# in the batch script, before srun; a requeued job gets a folder of its own",
        *export_lines(settings, folder, '"${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}"'),
        "# one log per rank, and no rank left waiting for one that ended:",
        '# srun --export=ALL --output="$DUMPS/log_rank_%t.txt" --kill-on-bad-exit=1 python train.py',
    ]
    return "\n".join(lines)


LAUNCHER = Launcher("srun", adds, render)
