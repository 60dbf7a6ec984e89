"""What is offered for a recorded case, from its evidence and its source, as `diagnose --source` would."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cases import CASES, examine_case
from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies import remedies


@dataclass(frozen=True, slots=True)
class Offered:
    probes: tuple[Probe, ...]
    fixes: tuple[Fix, ...]

    @property
    def patches(self) -> list[str]:
        return [offer.patch for offer in (*self.probes, *self.fixes) if offer.patch]


@cache
def offered(case: str) -> Offered:
    found = examine_case(case, source=True)
    assert found.analysis
    source = str(CASES / case / "source")
    return Offered(*remedies(found.forks, found.verdict.divergence, found.analysis, [source]))


def patched(source: Path, patch: str, target: Path) -> Path:
    """A copy of the source with the patch in it, put there by git."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    apply_patch(patch, target)
    return target


def apply_patch(patch: str, folder: Path) -> None:
    done = subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
