"""Kubernetes: variables stand in the pod's template; what is not on a volume goes with the pod."""

import json
from collections.abc import Sequence

from forkpoint.launch_env.launchers.launcher import Launcher
from forkpoint.launch_env.release import Release
from forkpoint.launch_env.wanted import Setting


def adds(_release: Release | None) -> tuple[Setting, ...]:
    return ()


def render(settings: Sequence[Setting], folder: str) -> str:
    """Every value is quoted: YAML would read 1 as a number, which Kubernetes refuses."""
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


LAUNCHER = Launcher("kubernetes", adds, render)
