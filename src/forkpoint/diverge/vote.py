"""Which side is the odd one. A majority decides only if no missing evidence could turn it over.

What a rank used to do is no proof against it: schedules change, and the rank at fault may be the one that did not
follow. It only tells which of "stayed behind" and "issued one too many" an absence is.
"""

from forkpoint.diverge.history import continues_pattern
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Tables


def odd_ranks(sides: tuple[tuple[int, ...], ...], unknown: int) -> tuple[int, ...]:
    """Of sides that did different things in one slot, largest first: the ranks outside the majority."""
    rest = tuple(sorted(r for side in sides[1:] for r in side))
    return rest if len(sides[0]) > len(rest) + unknown else ()


def odd_at_absence(
    present: tuple[int, ...], absent: tuple[int, ...], seq: int, group: GroupTimeline, unknown: int, tables: Tables
) -> tuple[int, ...]:
    """Some came to `seq`, some did not: did the absent stay behind, or did the present issue one op too many?"""
    habit = _regular(present, seq, group, tables)
    if len(present) > len(absent) + unknown or (habit is True and len(present) >= len(absent) + unknown):
        return absent
    if len(absent) > len(present) + unknown and habit is False:
        return present
    return ()


def _regular(side: tuple[int, ...], seq: int, group: GroupTimeline, tables: Tables) -> bool | None:
    """All of a side did the same, so one of them speaks for it: the one that remembers most."""
    tracks = [t for r in side if (t := group.track(r))]
    longest = max(tracks, key=lambda t: t.count, default=None)
    return continues_pattern(longest, seq, tables) if longest else None
