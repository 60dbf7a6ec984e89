"""What a rank usually calls next, which side of a parting is the odd one, and since when a side is off by some ops."""

import numpy as np

from forkpoint.diverge.slots import sequence, token_at
from forkpoint.model.entries import Tables
from forkpoint.model.op import Ints, Tokens
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import RankTrace, Track

# ---------------------------------------------------------------------------------------------------------------------
# What a rank usually calls next: programs repeat themselves, so history shows which of two ops is out of place.

CONTEXT = 4
"""How many preceding ops are compared to find the same place in the past; if that finds none, fewer are, down to one."""


def continues_pattern(track: Track, seq: int, tables: Tables) -> bool | None:
    """Did the rank do at `seq` in this group what it did before in the same context? None: that context is new."""
    held = sequence(track, tables)
    at = seq - held.first
    return _is_usual(held.calls, at) if 0 < at < len(held) else None


def keeps_habit(trace: RankTrace, record_id: int) -> bool | None:
    """Did the rank call at this entry, over all its groups, what it called before after the same calls? None: no history."""
    at = np.flatnonzero(trace.recent_records == record_id)
    return _is_usual(trace.recent_calls, int(at[0])) if at.size and at[0] > 0 else None


def usual_place(trace: RankTrace, record_id: int) -> int | None:
    """Index, among the recent calls, of what the rank called last time in this context; None: that context is new."""
    at = np.flatnonzero(trace.recent_records == record_id)
    if not at.size or at[0] == 0:
        return None
    places = _same_context(trace.recent_calls, int(at[0]))
    return int(places[-1]) if places.size else None


def next_group(trace: RankTrace) -> str | None:
    """The name of the group in which the rank used to issue its next op after the calls it made last."""
    calls = trace.recent_calls
    places = _same_context(calls, len(calls))
    return trace.groups[int(trace.recent_groups[places[-1]])].name if places.size else None


def _is_usual(calls: Tokens, at: int) -> bool | None:
    places = _same_context(calls, at)
    return bool((calls[places] == calls[at]).any()) if places.size else None


def _same_context(calls: Tokens, at: int) -> Ints:
    """Earlier positions after the same calls, with the longest context that ever occurred before."""
    found = (_after_same_calls(calls, at, length) for length in range(min(CONTEXT, at), 0, -1))
    return next((places for places in found if places.size), np.zeros(0, np.int64))


def _after_same_calls(calls: Tokens, at: int, length: int) -> Ints:
    """Earlier positions whose last `length` calls are those before `at`."""
    alike = np.ones(at - length, dtype=np.bool_)
    for back in range(1, length + 1):
        alike &= calls[length - back : at - back] == calls[at - back]
    return np.flatnonzero(alike) + length


# ---------------------------------------------------------------------------------------------------------------------
# Which side is the odd one. A majority decides only if missing evidence could not overturn it.
#
# That a rank did something new does not prove it wrong: schedules change, and the rank at fault may be the one that did not
# follow. History only decides whether an absence means "stayed behind" or "the others issued one op too many".


def odd_ranks(sides: tuple[tuple[int, ...], ...], unknown: int) -> tuple[int, ...]:
    """The ranks outside the majority. `sides` did different things in one slot; the largest comes first."""
    rest = tuple(sorted(r for side in sides[1:] for r in side))
    return rest if len(sides[0]) > len(rest) + unknown else ()


def odd_at_absence(
    present: tuple[int, ...], absent: tuple[int, ...], seq: int, group: GroupTimeline, unknown: int, tables: Tables
) -> tuple[int, ...]:
    """Some ranks reached `seq`, some did not: did the absent stay behind, or did the present issue one op too many?"""
    habit = _regular(present, seq, group, tables)
    if len(present) > len(absent) + unknown or (habit is True and len(present) >= len(absent) + unknown):
        return absent
    if len(absent) > len(present) + unknown and habit is False:
        return present
    return ()


def _regular(side: tuple[int, ...], seq: int, group: GroupTimeline, tables: Tables) -> bool | None:
    """`continues_pattern` for a side. All its ranks did the same, so the one with the longest record represents them."""
    tracks = [t for r in side if (t := group.track(r))]
    longest = max(tracks, key=lambda t: t.count, default=None)
    return continues_pattern(longest, seq, tables) if longest else None


# ---------------------------------------------------------------------------------------------------------------------
# If a rank skips one of several equal ops, its next op pairs with its peers' current one: nothing looks wrong until the
# end. Call stacks show when it started.

MAX_SHIFT = 512
"""By how many ops a side may be off: one iteration of a large model."""
PROOF = 3
"""Ops that must match after shifting. Two are not enough: swapped ops would match, too (x y x against y x x)."""


def find_shift(usual: Track, other: Track, visible: int, tables: Tables) -> tuple[int, int] | None:
    """By how many ops `other` is off from `usual`, and since which slot, up to `visible`. None: no shift explains the difference."""
    first = max(usual.first_seq, other.first_seq)
    ours, theirs = _calls_from(first, usual, tables), _calls_from(first, other, tables)
    limit = min(visible - first, len(ours), len(theirs))
    different = np.flatnonzero(ours[:limit] != theirs[:limit]) if limit > 0 else np.zeros(0, np.int64)
    start = int(different[0]) if different.size else visible - first
    if start < 0 or (start == 0 and not _begins_with(visible, usual, other, tables)):
        return None
    sites = [token_at(track, first + start, tables, "stack") for track in (usual, other)]
    if not _is_telling(ours, theirs, start, sites[0] == sites[1]):
        return None
    # If stacks show it before sizes do, only the part up to `visible` is compared: later differences may have other reasons.
    end = visible - first if different.size else max(len(ours), len(theirs))
    proof = min(PROOF, end - start) if different.size else PROOF
    for by in range(1, MAX_SHIFT + 1):
        for longer, behind, sign in ((ours[start:], theirs[start:], 1), (theirs[start:], ours[start:], -1)):
            ahead = longer[by:]
            fits = _common(ahead[: end - start], behind[: end - start])
            if start == 0 and fits and _may_be_swapped(longer, behind, by):
                return None
            if fits >= proof and (fits >= by or _fits_nowhere_before(behind[: _common(ahead, behind)], longer, by)):
                return sign * by, first + start
    return None


def _begins_with(visible: int, usual: Track, other: Track, tables: Tables) -> bool:
    """What is held begins with the call that does not fit, in which both sides wait: all before it fitted, and has only left the ring
    buffer. Otherwise they were never equal, because these ranks have different call sites.
    """
    pending = usual.active_seq == visible == other.active_seq
    return pending and token_at(usual, visible, tables) != token_at(other, visible, tables)


def _may_be_swapped(longer: Tokens, behind: Tokens, by: int) -> bool:
    """One side continues with exactly what it seems to have skipped, and from there on both agree: the order may be what differs."""
    length = min(len(longer), len(behind))
    return any(
        (longer[by:end] == behind[: end - by]).all()
        and (longer[:by] == behind[end - by : end]).all()
        and (longer[end:length] == behind[end:length]).all()
        for end in range(by + 1, length + 1)
    )


def _common(ahead: Tokens, behind: Tokens) -> int:
    """The number of calls that both hold, if all of them are equal; else 0."""
    length = min(len(ahead), len(behind))
    return length if (ahead[:length] == behind[:length]).all() else 0


def _fits_nowhere_before(calls: Tokens, longer: Tokens, by: int) -> bool:
    """No smaller shift matches all these calls. Programs repeat themselves: the end of a dump fits some shift by chance."""
    return bool(calls.size) and not any(
        (longer[other : other + len(calls)] == calls).all()
        for other in range(1, by)
        if other + len(calls) <= len(longer)
    )


def _is_telling(ours: Tokens, theirs: Tokens, start: int, same_site: bool) -> bool:
    """Whether the differences can mean a shift. At the same call site, they are rather changed arguments (which would fit any
    shift) if they are few, or calls that the other side never makes: a side that is off by some calls makes the same calls.
    """
    if not same_site:
        return True
    length = min(len(ours), len(theirs))
    different = ours[start:length] != theirs[start:length]
    if int(different.sum()) < PROOF:
        return False
    known = (
        np.isin(theirs[start:length][different], ours).all() and np.isin(ours[start:length][different], theirs).all()
    )
    return bool(known)


def _calls_from(first: int, track: Track, tables: Tables) -> Tokens:
    held = sequence(track, tables)
    return held.calls[first - held.first :]
