"""What can go wrong here. None of it ends a job by itself, unless asked to."""

from typing import TYPE_CHECKING

from forkpoint.errors import ForkpointError

if TYPE_CHECKING:
    from forkpoint.replicas.report import Report


class ReplicasError(ForkpointError):
    pass


class NotDerivable(ReplicasError):
    """Which ranks hold the same tensors cannot be told from the model."""


class ReplicasDiffer(ReplicasError):
    """Raised on every member of the group where `raise_on_mismatch` is set."""

    def __init__(self, report: "Report") -> None:
        super().__init__(str(report))
        self.report = report
