"""Stage 5: Incident -> Findings. One cause per file, listed here by hand."""

from collections.abc import Callable, Iterator

from forkpoint.judge.detectors import (
    divergent_path,
    gpu_stall,
    healthy,
    host_stall,
    logs_alone,
    metadata_mismatch,
    never_joined,
    order_inversion,
    out_of_line,
    parted_stacks,
    rank_lost,
    silent_corruption,
    straggler,
    transport,
    undecided,
)
from forkpoint.judge.repairs import is_explained
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Action, Cause, Finding
from forkpoint.parts import Parts

Detector = Callable[[Incident], Iterator[Finding]]

DETECTORS: tuple[Detector, ...] = (
    divergent_path.find,
    order_inversion.find,
    metadata_mismatch.find,
    host_stall.find,
    gpu_stall.find,
    transport.find,
    rank_lost.find,
    never_joined.find,
    straggler.find,
    silent_corruption.find,
)
"""Each recognises one cause."""

WITHOUT_CAUSE: tuple[Detector, ...] = (
    out_of_line.find,
    healthy.find,
    parted_stacks.find,
    logs_alone.find,
    undecided.find,
)
"""What can be said where no cause is found. They are asked in this order, and the first that answers counts; the last
always does.
"""


NOTHING = Finding(
    detector="undecided",
    cause=Cause.INCONCLUSIVE,
    suspects=(),
    confidence=0.0,
    summary="forkpoint broke on this evidence and cannot say what it shows",
    action=Action.INVESTIGATE,
    evidence=(),
)
"""Where even what always answers broke."""


def detect(incident: Incident, parts: Parts) -> tuple[Finding, ...]:
    """A cause is only named where its replay shows both that the job stops there, and that the repair lets it go on."""
    before = len(parts.broken)
    causes = [finding for find in DETECTORS for finding in _found(find, incident, parts, explained=True)]
    if causes:
        return tuple(causes)
    # Whether anything is wrong is not known where a detector broke.
    all_looked = len(parts.broken) == before
    asked = [find for find in WITHOUT_CAUSE if all_looked or find is not healthy.find]
    return next((found for find in asked if (found := _found(find, incident, parts))), (NOTHING,))


def _found(find: Detector, incident: Incident, parts: Parts, *, explained: bool = False) -> tuple[Finding, ...]:
    name = f"the detector {find.__module__.rpartition('.')[2]}"
    return parts.run(name, lambda: tuple(f for f in find(incident) if not explained or is_explained(f, incident)), ())
