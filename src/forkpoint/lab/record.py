"""One fault from start to end: patch the job, run it, keep what a person would have, with the truth beside it."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forkpoint.lab.case_folder import write_case
from forkpoint.lab.fault import Fault
from forkpoint.lab.patch import patch
from forkpoint.lab.plan import JobPlan
from forkpoint.lab.ranks import DUMP_PREFIX, LabSettings, run_ranks

__all__ = ["LabSettings", "RecordedFault", "record"]


@dataclass(frozen=True, slots=True)
class RecordedFault:
    fault: Fault
    folder: Path
    """capture/, source/ and case.toml."""
    seconds: float
    exits: Mapping[int, int]
    """Rank -> exit code; negative is the signal. Ranks that still lived were killed (-9)."""

    @property
    def capture(self) -> Path:
        return self.folder / "capture"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def dumps(self) -> int:
        return len(list(self.capture.glob(DUMP_PREFIX + "*")))

    def log(self, rank: int) -> str:
        return (self.capture / f"log_rank_{rank}.txt").read_text(errors="replace")


def record(fault: Fault, settings: LabSettings) -> RecordedFault:
    """Into settings.out/NAME. No process is left, however it ends."""
    folder = settings.out.absolute() / fault.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    patched = patch(fault)
    (folder / "source" / "train.py").write_text(patched.text)
    world = settings.world or fault.job.world
    write_case(folder, fault, patched, settings.backend, world)
    plan = JobPlan(
        name=fault.name,
        source=folder / "source",
        world=world,
        env=fault.env,
        signals=fault.signals,
        absent=fault.absent,
        dump_at_end=fault.ends,
    )
    ended = run_ranks(plan, settings, folder / "capture")
    return RecordedFault(fault, folder, ended.seconds, ended.exits)
