"""The detectors, listed by hand: one cause per file. `judge/verdict.py` runs them."""

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
"""Each recognises one cause."""

WITHOUT_CAUSE: tuple[Detector, ...] = (
    out_of_line.find,
    healthy.find,
    parted_stacks.find,
    logs_alone.find,
    undecided.find,
)
"""Used if no cause is found. They are asked in this order until one answers; the last always does."""
