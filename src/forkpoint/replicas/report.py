"""What a check found, as a value that is the same on all members of the group; and what can go wrong."""

from dataclasses import dataclass
from enum import StrEnum

from forkpoint.errors import ForkpointError
from forkpoint.model.values import DesyncKind as Kind
from forkpoint.model.world import name_ranks


class What(StrEnum):
    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    SCALAR = "scalar"
    TENSOR = "tensor"
    """Given by name in `tensors=`."""
    STEP = "step"
    """The number of the step itself."""
    UPDATE = "update"
    """How often the optimizer has stepped."""
    LAYOUT = "layout"
    """Names, shapes, dtypes and order of what is compared."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    what: What
    tensor: str | None
    """None for step, update and layout."""
    ranks: tuple[int, ...]
    """Global ranks of the group."""
    checksums: tuple[int, ...]
    """In the order of `ranks`; for a step or an update the number itself."""
    odd: tuple[int, ...]
    """By majority of three or more; both of two; empty without a majority."""
    kind: Kind
    why: str

    def __str__(self) -> str:
        name = f"{self.what} {self.tensor}" if self.tensor else str(self.what)
        who = name_ranks(self.odd) if self.odd else f"no rank of {name_ranks(self.ranks)} can be singled out"
        return f"{name}: {who}, {self.kind}: {self.why}"


@dataclass(frozen=True, slots=True)
class Compared:
    ranks: tuple[int, ...]
    tensors: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    step: int
    mismatches: tuple[Mismatch, ...]
    more: int
    """Mismatches of the same check that are only counted."""
    compared: tuple[Compared, ...]
    last_equal: int | None
    """The last step at which everything was equal."""

    @property
    def equal(self) -> bool:
        return not self.mismatches

    @property
    def kind(self) -> Kind | None:
        """The kind of the first mismatch, software first. None: all is equal."""
        return self.mismatches[0].kind if self.mismatches else None

    @property
    def odd(self) -> tuple[int, ...]:
        return tuple(sorted({rank for found in self.mismatches for rank in found.odd}))

    def __str__(self) -> str:
        if self.equal:
            return f"replicas are equal at step {self.step}"
        more = f"; and {self.more} more" if self.more else ""
        before = "never before" if self.last_equal is None else f"last at step {self.last_equal}"
        return f"replicas differ at step {self.step} (equal {before}): {'; '.join(map(str, self.mismatches))}{more}"


# ---------------------------------------------------------------------------------------------------------------------
# What can go wrong. None of it ends a job, unless the user asked for that.


class ReplicasError(ForkpointError):
    pass


class NotDerivable(ReplicasError):
    """The model does not show which ranks have the same tensors."""


class ReplicasDiffer(ReplicasError):
    """Raised on every member of the group if `raise_on_mismatch` is set."""

    def __init__(self, report: "Report") -> None:
        super().__init__(str(report))
        self.report = report
