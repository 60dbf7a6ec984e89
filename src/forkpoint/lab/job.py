"""The healthy jobs that the lab breaks: programs as people write them, kept as data and run by path."""

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "jobs"


@dataclass(frozen=True, slots=True)
class HealthyJob:
    name: str
    title: str
    layout: str
    world: int
    """Ranks, where nothing else is asked for."""

    @property
    def text(self) -> str:
        return (_FOLDER / f"{self.name}.py").read_text()


DDP = HealthyJob("ddp", "DistributedDataParallel with evaluation, checkpoints and early stopping", "DP", 4)
FSDP = HealthyJob("fsdp", "FSDP2 with accumulated gradients and samples", "FSDP", 4)
MESH = HealthyJob("mesh", "tensor parallel by data parallel on a DeviceMesh", "TPxDP", 4)
PIPELINE = HealthyJob("pipeline", "a pipeline of stages with send and recv", "PP", 3)
MOE = HealthyJob("moe", "a mixture of experts with all_to_all", "MoE", 4)
LOOP = HealthyJob("loop", "a hand-written loop with groups and a loader thread", "hand-written", 4)

JOBS = (DDP, FSDP, MESH, PIPELINE, MOE, LOOP)
