"""The one place where a `Divergence` is made: at a recorded slot or message, or in a group of which nothing was recorded."""

from forkpoint.cohorts import channel_cohorts, cohorts_at
from forkpoint.model.divergence import Cohort, Divergence, PartingKind, Shift
from forkpoint.model.timeline import Channel, GroupTimeline, Timeline
from forkpoint.model.world import ProcessGroup


def build_divergence(  # noqa: PLR0913 the parts of a divergence; all that can be confused are named
    how: PartingKind,
    where: GroupTimeline | Channel,
    at: int | None,
    timeline: Timeline,
    *,
    sides: tuple[tuple[int, ...], ...],
    hang: int | None,
    odd: tuple[int, ...] = (),
    shift: Shift | None = None,
    unknown: tuple[int, ...] = (),
    numbered: bool = True,
) -> Divergence:
    """`at`: the slot or message whose cohorts are shown. It is the fork point itself unless `shift` says that one side was
    off before. `numbered` False: this is not the number that the other end counts, so none is told.
    """
    channel = (where.source, where.destination) if isinstance(where, Channel) else None
    visible = at if numbered else None
    return Divergence(
        how=how,
        group=where.group,
        channel=channel,
        seq=shift.since if shift and visible is not None else visible,
        first_visible_seq=visible,
        hang_seq=hang,
        cohorts=channel_cohorts(where, at or 0, timeline)
        if isinstance(where, Channel)
        else cohorts_at(where, at or 0, timeline),
        odd=odd,
        sides=sides,
        shift=shift,
        unknown=unknown,
    )


def unrecorded_divergence(
    how: PartingKind,
    cohorts: tuple[Cohort, ...],
    odd: tuple[int, ...] = (),
    *,
    ranks: tuple[int, ...] = (),
    seq: int | None = None,
) -> Divergence:
    """In the default group, where logs or stacks alone say what ranks did. `ranks`: its members, if not just the cohorts'."""
    members = ranks or tuple(sorted(rank for cohort in cohorts for rank in cohort.ranks))
    group = ProcessGroup("0", "default_pg", members, declared=False)
    return Divergence(how, group, None, seq, seq, seq, cohorts, odd, tuple(cohort.ranks for cohort in cohorts))


def first_pending(where: GroupTimeline | Channel) -> int | None:
    """The first slot or message in which a rank still waits."""
    if isinstance(where, Channel):
        tracks = [where.sent, where.received]
    else:
        tracks = [where.track(rank) for _, rank in where.kinds]
    return min((t.active_seq for t in tracks if t and t.active_seq is not None), default=None)
