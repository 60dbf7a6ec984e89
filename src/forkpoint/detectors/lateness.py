"""Ranks that came to a slot later than the timeout allows, measured so that clocks of different hosts cancel out."""

from statistics import median

from forkpoint.cohorts import frontier_op
from forkpoint.detectors.cite import group_of
from forkpoint.model.divergence import Divergence
from forkpoint.model.incident import Incident
from forkpoint.model.trace import Track

NS_PER_MS = 1_000_000


def late_ranks(divergence: Divergence, incident: Incident) -> dict[int, float]:
    """Rank -> seconds after its peers, for ranks later than the group's timeout. Needs the slot before as a start."""
    if divergence.channel is not None or divergence.hang_seq is None:
        return {}
    group = group_of(divergence, incident)
    since: dict[int, int] = {}
    timeout_ms = 0
    for rank in group.traces:
        track = group.track(rank)
        pause = _pause_before(track, divergence.hang_seq) if track else None
        if track is not None and pause is not None:
            since[rank] = pause
            timeout_ms = max(timeout_ms, track.last.timeout_ms)
    if len(since) < 2 or not timeout_ms:
        return {}
    usual = median(since.values())
    return {r: (took - usual) / 1e9 for r, took in since.items() if took - usual > timeout_ms * NS_PER_MS}


def _pause_before(track: Track, seq: int) -> int | None:
    """Time on this rank's own clock between issuing the slot before and issuing `seq`, if it is still known."""
    op = frontier_op(track, seq)
    if op is not None:
        return op.since_previous_ns
    return track.longest_pause_ns if track.longest_pause_seq == seq else None
