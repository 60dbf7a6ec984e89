"""What is offered for a recorded case, from its evidence and its source, as `diagnose --source` would."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forkpoint.align import align
from forkpoint.bridge import bridge
from forkpoint.cohorts import find_partings
from forkpoint.detectors import detect
from forkpoint.diverge import find_divergences
from forkpoint.ingest import read
from forkpoint.judge.verdict import judge
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies import remedies
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse

CASES = Path(__file__).parents[2] / "cases"


@dataclass(frozen=True, slots=True)
class Offered:
    probes: tuple[Probe, ...]
    fixes: tuple[Fix, ...]

    @property
    def patches(self) -> list[str]:
        return [offer.patch for offer in (*self.probes, *self.fixes) if offer.patch]


@cache
def offered(case: str) -> Offered:
    capture = read([str(CASES / case / "capture")])
    timeline = align(capture)
    incident = Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))
    verdict = judge(incident, detect(incident))
    source = str(CASES / case / "source")
    analysis = analyse(read_program([source]))
    return Offered(*remedies(bridge(incident, verdict, analysis), verdict.divergence, analysis, [source]))


def patched(source: Path, patch: str, target: Path) -> Path:
    """A copy of the source with the patch in it, put there by git."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    apply_patch(patch, target)
    return target


def apply_patch(patch: str, folder: Path) -> None:
    done = subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
