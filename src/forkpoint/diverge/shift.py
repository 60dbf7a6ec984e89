"""A rank that skipped an op among equal ones pairs its next op with its peers' current one: nothing looks wrong until
the end. Call stacks show since when.
"""

from dataclasses import dataclass

import numpy as np

from forkpoint.align.slots import sequence, token_at
from forkpoint.model.trace import Tables, Tokens, Track

MAX_SHIFT = 512
"""How many ops a side may be off: one iteration of a large model."""
PROOF = 3
"""Ops that must fit the shift: of two, swapped ones fit as well (x y x against y x x)."""


@dataclass(frozen=True, slots=True)
class FoundShift:
    by: int
    since: int


def find_shift(usual: Track, other: Track, visible: int, tables: Tables) -> FoundShift | None:
    """How `other` runs off `usual` from some slot up to `visible` on. None: no such run explains the difference."""
    first = max(usual.first_seq, other.first_seq)
    ours, theirs = _calls_from(first, usual, tables), _calls_from(first, other, tables)
    limit = min(visible - first, len(ours), len(theirs))
    different = np.flatnonzero(ours[:limit] != theirs[:limit]) if limit > 0 else np.zeros(0, np.int64)
    start = int(different[0]) if different.size else visible - first
    if start <= 0 or not _is_telling(ours, theirs, start, _same_site(usual, other, first + start, tables)):
        return None  # start 0: never alike, these ranks have call sites of their own
    # Seen in stacks before it shows, it is measured up to there: what comes after may be another thing altogether.
    end = visible - first if different.size else max(len(ours), len(theirs))
    proof = min(PROOF, end - start) if different.size else PROOF
    for by in range(1, MAX_SHIFT + 1):
        if _fits(ours[start + by : end + by], theirs[start:end], proof):
            return FoundShift(by, first + start)
        if _fits(theirs[start + by : end + by], ours[start:end], proof):
            return FoundShift(-by, first + start)
    return None


def _fits(ahead: Tokens, behind: Tokens, proof: int) -> bool:
    """The same calls, as far as both are held, and enough of them."""
    length = min(len(ahead), len(behind))
    return length >= proof and bool((ahead[:length] == behind[:length]).all())


def _is_telling(ours: Tokens, theirs: Tokens, start: int, same_site: bool) -> bool:
    """Where the call site is the same, one odd op among equal ones is a change of arguments, and fits any shift."""
    length = min(len(ours), len(theirs))
    return not same_site or int((ours[start:length] != theirs[start:length]).sum()) >= PROOF


def _same_site(usual: Track, other: Track, seq: int, tables: Tables) -> bool:
    return token_at(usual, seq, tables, "stack") == token_at(other, seq, tables, "stack")


def _calls_from(first: int, track: Track, tables: Tables) -> Tokens:
    held = sequence(track, tables)
    return held.calls[first - held.first :]
