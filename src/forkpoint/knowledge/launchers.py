"""How each launcher passes settings to its ranks: what `forkpoint env` prints for it."""

import json
import shlex
from collections.abc import Callable, Sequence

from msgspec import Struct

from forkpoint.knowledge.recorder import Release, Setting


class Launcher(Struct, frozen=True):
    name: str
    adds: Callable[[Release | None], tuple[Setting, ...]]
    """Additional settings for this launcher."""
    render: Callable[[Sequence[Setting], str], str]
    """(settings, folder for the folders of all jobs) -> text to paste, with a comment for each setting."""


def _export_lines(settings: Sequence[Setting], folder: str, job: str) -> list[str]:
    """For a shell script: creates a folder per job, since torch does not, and has one line per setting."""
    lines = [f"JOB={job}", f'DUMPS={shlex.quote(folder)}/"$JOB"', 'mkdir -p "$DUMPS"']
    shown = [(f"export {setting.name}={_shell_value(setting)}", setting.why) for setting in settings]
    column = max(len(line) for line, _ in shown)
    return [*lines, *(f"{line:<{column}}  # {why}" for line, why in shown)]


def _shell_value(setting: Setting) -> str:
    return f'"$DUMPS/{setting.value}"' if setting.in_folder else shlex.quote(setting.value)


_GRACE_SINCE = Release(2, 13)
"""The first release that reads TORCH_ELASTIC_SHUTDOWN_TIMEOUT, as far as known."""


def _torchrun_adds(release: Release | None) -> tuple[Setting, ...]:
    handling = Setting(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "torchrun sets 1, whose abort can block before the dump is out"
    )
    grace = Setting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "90", "torchrun kills after 30 s; a dump may take a minute")
    return (handling, grace) if release is None or release >= _GRACE_SINCE else (handling,)


def _render_torchrun(settings: Sequence[Setting], folder: str) -> str:
    """torchrun: workers inherit the shell's variables, except those for error handling and log files, which it sets."""
    lines = [
        "# before torchrun, on every node; the same JOB on all of them",
        *_export_lines(settings, folder, '"${SLURM_JOB_ID:-$(date +%Y%m%d-%H%M%S)}"'),
        "# one log per rank, which torchrun does not keep by itself:",
        '# torchrun --rdzv-id "$JOB" --log-dir "$DUMPS/logs" --tee 3 ...',
    ]
    return "\n".join(lines)


def _render_srun(settings: Sequence[Setting], folder: str) -> str:
    """Slurm: tasks inherit the batch script's variables unless --export says otherwise."""
    lines = [
        "# in the batch script, before srun; a requeued job gets a folder of its own",
        *_export_lines(settings, folder, '"${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}"'),
        "# one log per rank, and no rank left waiting for one that ended:",
        '# srun --export=ALL --output="$DUMPS/log_rank_%t.txt" --kill-on-bad-exit=1 python train.py',
    ]
    return "\n".join(lines)


def _render_kubernetes(settings: Sequence[Setting], folder: str) -> str:
    """Kubernetes: variables are in the pod's template; what is not on a volume is lost with the pod.

    Every value is quoted: YAML would read 1 as a number, which Kubernetes rejects.
    """
    lines = [
        "# in the pod's template; a pod that is replaced gets a folder of its own, made by Kubernetes",
        "terminationGracePeriodSeconds: 90  # a dump may take a minute",
        "containers:",
        "  - name: trainer",
        "    env:",
        "      - name: POD_UID",
        "        valueFrom: {fieldRef: {fieldPath: metadata.uid}}",
    ]
    for setting in settings:
        value = f"{folder.rstrip('/')}/{setting.value}" if setting.in_folder else setting.value
        lines += [f"      - name: {setting.name}  # {setting.why}", f"        value: {json.dumps(value)}"]
    lines += [
        "    volumeMounts:",
        "      - name: dumps",
        f"        mountPath: {json.dumps(folder)}",
        "        subPathExpr: $(POD_UID)",
        "volumes:",
        "  - name: dumps  # one that outlives the pod",
        "    persistentVolumeClaim: {claimName: dumps}",
    ]
    return "\n".join(lines)


def _ray_adds(_release: Release | None) -> tuple[Setting, ...]:
    return (Setting("RAY_DEDUP_LOGS", "0", "Ray folds equal lines of ranks into one; set it for the driver as well"),)


def _render_ray(settings: Sequence[Setting], folder: str) -> str:
    """Ray: workers do not inherit the driver's shell; variables go into the runtime environment."""
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


def _adds_nothing(_release: Release | None) -> tuple[Setting, ...]:
    return ()


LAUNCHERS = (
    Launcher("torchrun", _torchrun_adds, _render_torchrun),
    Launcher("srun", _adds_nothing, _render_srun),
    Launcher("kubernetes", _adds_nothing, _render_kubernetes),
    Launcher("ray", _ray_adds, _render_ray),
)
