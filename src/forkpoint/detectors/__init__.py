"""Stage 6: Incident -> Findings. One cause per file, listed here by hand."""

from collections.abc import Callable, Iterator

from forkpoint.detectors import (
    divergent_path,
    gpu_stall,
    host_stall,
    metadata_mismatch,
    never_joined,
    order_inversion,
    rank_lost,
    silent_corruption,
    straggler,
    transport,
)
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Finding

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


def detect(incident: Incident) -> tuple[Finding, ...]:
    return tuple(finding for find in DETECTORS for finding in find(incident))
