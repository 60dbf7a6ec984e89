"""Which torch is installed: asked in a child process, so that this one does not import it."""

import subprocess
import sys
from dataclasses import dataclass

from forkpoint.errors import UsageError
from forkpoint.lab.fault import Backend

_ASK = """
import torch, torch.distributed as dist
print(torch.__version__, dist.is_nccl_available() and torch.cuda.is_available())
"""
_TIMEOUT_S = 120  # a cold file system takes long to import torch from


@dataclass(frozen=True, slots=True)
class TorchHere:
    version: str
    nccl: bool
    """A build with NCCL, and a GPU to use it on."""

    @property
    def backend(self) -> Backend:
        return "nccl" if self.nccl else "gloo"


def find_torch(python: str = sys.executable) -> TorchHere:
    """Raises UsageError where there is none."""
    asked = subprocess.run(  # noqa: S603 - our own Python on our own text
        [python, "-c", _ASK], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    if asked.returncode:
        why = asked.stderr.strip().rpartition("\n")[2]
        raise UsageError(
            f"the lab runs real jobs and needs torch, which {python} cannot import ({why}): pip install torch"
        )
    version, nccl = asked.stdout.split()
    return TorchHere(version, nccl == "True")
