"""What a rank usually does next: programs repeat themselves, so the past says which of two ops is out of place."""

import numpy as np

from forkpoint.align.slots import sequence
from forkpoint.model.trace import Ints, RankTrace, Tables, Tokens, Track

CONTEXT = 4
"""Ops before a slot that must be alike for the past to count: more context is tried first, down to one."""


def continues_pattern(track: Track, seq: int, tables: Tables) -> bool | None:
    """Did the rank do at `seq` of this group what it did before in the same place? None: it was never there before."""
    held = sequence(track, tables)
    at = seq - held.first
    return _is_usual(held.calls, at) if 0 < at < len(held) else None


def keeps_habit(trace: RankTrace, record_id: int) -> bool | None:
    """Did the rank, over all its groups, do at this entry what it did before after the same calls?"""
    at = np.flatnonzero(trace.recent_records == record_id)
    return _is_usual(trace.recent_calls, int(at[0])) if at.size and at[0] > 0 else None


def usual_place(trace: RankTrace, record_id: int) -> int | None:
    """Index among the recent calls of what came the last time in the place of this entry; None without a past."""
    at = np.flatnonzero(trace.recent_records == record_id)
    if not at.size or at[0] == 0:
        return None
    places = _like_places(trace.recent_calls, int(at[0]))
    return int(places[-1]) if places.size else None


def next_group(trace: RankTrace) -> str | None:
    """The name of the group in which the rank used to issue its next op after what it did last."""
    calls = trace.recent_calls
    places = _like_places(calls, len(calls))
    return trace.groups[int(trace.recent_groups[places[-1]])].name if places.size else None


def _is_usual(calls: Tokens, at: int) -> bool | None:
    places = _like_places(calls, at)
    return bool((calls[places] == calls[at]).any()) if places.size else None


def _like_places(calls: Tokens, at: int) -> Ints:
    """Earlier positions reached through the same calls, with as much context as was ever repeated."""
    found = (_places_like(calls, at, length) for length in range(min(CONTEXT, at), 0, -1))
    return next((places for places in found if places.size), np.zeros(0, np.int64))


def _places_like(calls: Tokens, at: int, length: int) -> Ints:
    """Earlier positions that were reached through the same `length` calls."""
    alike = np.ones(at - length, dtype=np.bool_)
    for back in range(1, length + 1):
        alike &= calls[length - back : at - back] == calls[at - back]
    return np.flatnonzero(alike) + length
