"""Equality of replicas: what must be bitwise equal across ranks, compared while the job trains. Imports torch.

See docs/replicas.md for what is compared under which parallelism, what it costs, and what it cannot see.
"""

from forkpoint.replicas.recheck import Recheck, Result, recheck
from forkpoint.replicas.report import (
    Compared,
    Kind,
    Mismatch,
    NotDerivable,
    ReplicasDiffer,
    ReplicasError,
    Report,
    What,
)
from forkpoint.replicas.watcher import Watch, check, watch

__all__ = [
    "Compared",
    "Kind",
    "Mismatch",
    "NotDerivable",
    "Recheck",
    "ReplicasDiffer",
    "ReplicasError",
    "Report",
    "Result",
    "Watch",
    "What",
    "check",
    "recheck",
    "watch",
]
