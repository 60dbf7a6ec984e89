"""What makes a computation give the same bits twice, as this process has it set."""

import os
from dataclasses import astuple, dataclass

import torch


@dataclass(frozen=True, slots=True)
class Determinism:
    deterministic_algorithms: bool
    cudnn_benchmark: bool
    cublas_workspace: str | None
    float32_precision: str
    """`high` and `medium` allow TF32: less exact, but not less repeatable."""
    device: str
    threads: int
    torch: str

    def missing(self) -> tuple[str, ...]:
        """What two runs of any step on this device need and do not have."""
        if self.device == "cpu":
            return ()
        wanted = {
            "torch.use_deterministic_algorithms(True)": self.deterministic_algorithms,
            "torch.backends.cudnn.benchmark = False": not self.cudnn_benchmark,
            "CUBLAS_WORKSPACE_CONFIG=:4096:8": self.cublas_workspace in {":4096:8", ":16:8"},
        }
        return tuple(setting for setting, has in wanted.items() if not has)

    def told(self) -> str:
        """Equal on two ranks, or their results cannot be compared."""
        return " ".join(map(str, astuple(self)))


def determinism(device: torch.device) -> Determinism:
    return Determinism(
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.get_float32_matmul_precision(),
        "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device),
        torch.get_num_threads(),
        torch.__version__,
    )
