"""How each launcher hands settings to its ranks. One file each."""

from forkpoint.launch_env.launchers import kubernetes, ray, srun, torchrun
from forkpoint.launch_env.launchers.launcher import Launcher

LAUNCHERS: tuple[Launcher, ...] = (
    torchrun.LAUNCHER,
    srun.LAUNCHER,
    kubernetes.LAUNCHER,
    ray.LAUNCHER,
)
