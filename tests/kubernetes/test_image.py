"""The image, built by a real tool from a base of this machine's own Debian mirror, and forkpoint run in it.

Nothing is fetched from a registry of images: `debootstrap` makes the base, which is what `debian:trixie-slim` is made from,
and a folder of wheels stands for the index.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
PYTHON = "3.13"
NEEDED = ("buildah", "debootstrap")

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason="apt install buildah debootstrap"),
]


class Builder:
    def __init__(self, folder: Path) -> None:
        self._words = ["buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._environ = os.environ | {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._words, *words], env=self._environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr


def make_base(folder: Path) -> None:
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    mirrors = subprocess.run(targets, capture_output=True, text=True, check=True).stdout.split()
    words = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "trixie", str(folder / "base")]
    if not mirrors or subprocess.run([*words, mirrors[0]], capture_output=True, check=False).returncode:
        pytest.skip("debootstrap cannot make a base from this machine's mirror")


def fetch_wheels(folder: Path) -> None:
    chosen = ["--python-version", PYTHON, "--only-binary=:all:", "--dest", str(folder / "wheels"), "--quiet"]
    for wanted in (["--no-deps", "--requirement", str(FOLDER / "requirements.txt")], ["hatchling"]):
        fetched = subprocess.run([sys.executable, "-m", "pip", "download", *chosen, *wanted], check=False)
        if fetched.returncode:
            pytest.skip("pip cannot download the wheels of the image")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    folder = tmp_path_factory.mktemp("image")
    make_base(folder)
    fetch_wheels(folder)
    build = Builder(folder)
    base = build("from", "scratch").strip()
    build("add", base, str(folder / "base"), "/")
    build("commit", "--quiet", base, "localhost/debian:trixie-slim")
    build(
        *("bud", "--isolation", "chroot", "--build-arg", "BASE=localhost/debian:trixie-slim"),
        *("--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
        *("--volume", f"{folder}/wheels:/wheels:ro", "--file", str(FOLDER / "Dockerfile")),
        *("--tag", "localhost/forkpoint:test", str(ROOT)),
    )
    container = build("from", "localhost/forkpoint:test").strip()
    yield build, container
    build("rm", "--all")
    shutil.rmtree(folder)


def test_forkpoint_runs_in_its_image_as_nobody_in_particular(image: tuple[Builder, str], tmp_path: Path) -> None:
    build, container = image
    logs = shutil.copytree(ROOT / "cases" / "0017" / "capture", tmp_path / "logs")
    tmp_path.chmod(0o755)

    def run(*words: str) -> str:
        return build("run", "--volume", f"{logs}:/logs:ro", container, "--", *words)

    assert "uid=65532 gid=65532" in run("id")
    assert "forkpoint 0." in run("forkpoint", "--version")
    assert "Rank 0 ran" in run("forkpoint", "demo", "--quiet")
    watched = "forkpoint watch /logs --once --every 0.2 || test $? = 1"
    assert "Rank 5 is still in" in run("sh", "-c", watched)
    serves = (
        "import prometheus_client, psycopg, sqlalchemy, starlette, importlib.util as u; print(u.find_spec('torch'))"
    )
    assert run("python3", "-c", serves).strip() == "None"
    assert "refused" in run("sh", "-c", "touch /opt/forkpoint/x 2>/dev/null || echo refused")
