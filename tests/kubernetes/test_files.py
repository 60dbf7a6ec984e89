"""The manifests under examples/kubernetes start what exists, as somebody without rights, and are what Kubernetes takes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from forkpoint.cli import build_parser
from looping import for_each

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
OURS = "registry.example/forkpoint:0.1"
RELEASES = ("1.33", "1.35", "1.37")


def pods(manifest: Path) -> list[dict[str, Any]]:
    documents = list(yaml.safe_load_all(manifest.read_text()))
    return [document["spec"]["template"]["spec"] for document in documents if "spec" in document]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_there_is_a_job_a_sidecar_and_a_daemon_set() -> None:
    assert [path.name for path in MANIFESTS] == ["sidecar.yaml", "training-job.yaml", "watch-daemonset.yaml"]


@for_each("manifest", MANIFESTS, ids=lambda path: path.name)
def test_containers_run_commands_that_exist_and_mount_what_is_there(manifest: Path, tmp_path: Path) -> None:
    for pod in pods(manifest):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in containers(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            words = [*container.get("command", []), *container.get("args", [])]
            if container["image"] == OURS:  # whose entry point is forkpoint
                words = ["forkpoint", *words]
            if words[0] == "forkpoint":
                build_parser().parse_args(words[1:])
            else:
                assert words[0] == "torchrun"


@for_each("manifest", MANIFESTS, ids=lambda path: path.name)
def test_our_own_image_runs_without_rights_and_reads_what_it_watches(manifest: Path) -> None:
    for pod in pods(manifest):
        for container in [one for one in containers(pod) if one["image"] == OURS]:
            rights = container["securityContext"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["runAsUser"] > 0
            assert rights["readOnlyRootFilesystem"]
            assert not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"]["drop"] == ["ALL"]
            assert pod["automountServiceAccountToken"] is False
            watched = container["args"][1]
            assert next(m for m in container["volumeMounts"] if m["mountPath"] == watched)["readOnly"]
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@for_each("manifest", MANIFESTS, ids=lambda path: path.name)
def test_secrets_come_from_a_secret_alone_and_nobody_needs_one(manifest: Path) -> None:
    for pod in pods(manifest):
        for container in containers(pod):
            names = {one["name"] for one in container.get("env", []) if "value" in one}
            assert not {name for name in names if name.startswith("FORKPOINT") or "TOKEN" in name or "KEY" in name}
            assert all(one["secretRef"]["optional"] for one in container.get("envFrom", []))


def test_what_the_image_holds_is_pinned_and_is_what_the_extras_ask_for() -> None:
    """`pip check` in the Dockerfile compares versions; here: nothing is left open."""
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    dockerfile = (FOLDER / "Dockerfile").read_text()

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9.]*", line)] == []
    assert {"numpy", "msgspec", "rich", "prometheus-client", "psycopg", "sqlalchemy"} <= {
        line.partition("==")[0] for line in lines
    }
    assert "torch" not in "".join(lines)
    assert re.search(r"^USER 65532:65532$", dockerfile, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(word for words in copied for word in words.split()) == sorted(allowed)


@pytest.mark.sweep
def test_the_published_schemas_of_kubernetes_take_every_manifest() -> None:
    pytest.importorskip("kubernetes_validate", reason="pip install 'forkpoint[test-sinks]'")
    command = shutil.which("kubernetes-validate", path=str(Path(sys.executable).parent))
    assert command

    def refused(text: str, release: str) -> bool:
        words = [command, "--strict", "--quiet", "--kubernetes-version", release, "-"]
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False).returncode != 0

    assert [(m.name, release) for m in MANIFESTS for release in RELEASES if refused(m.read_text(), release)] == []
    broken = MANIFESTS[0].read_text().replace("restartPolicy: Never", "restartPolici: Never")
    assert refused(broken, RELEASES[0])
