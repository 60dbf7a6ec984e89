"""Sites from stacks alone, where no source was given: the line at which each cohort stands, and nothing more."""

from collections.abc import Iterator

from forkpoint.model.divergence import Cohort, Divergence, Role
from forkpoint.model.frames import user_frames
from forkpoint.model.incident import Incident
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Site, Verdict

_MAX_SITES = 3
_HELD = frozenset({Cause.HOST_STALL, Cause.GPU_STALL, Cause.NEVER_JOINED, Cause.STRAGGLER})


def find_bare_sites(incident: Incident, verdict: Verdict) -> tuple[Site, ...]:
    """The odd ranks' place first."""
    found = [*_held(incident, verdict)] or [*_parting(verdict.divergence, verdict.suspects)]
    return tuple(dict.fromkeys(found))[:_MAX_SITES]


def _held(incident: Incident, verdict: Verdict) -> Iterator[Site]:
    """Where the suspects' main threads were, if that is what holds the others."""
    if verdict.cause in _HELD:
        for live in incident.capture.stacks:
            frames = user_frames(live.stack)
            if live.rank in verdict.suspects and frames:
                yield _site(frames[0], _cohort_of(live.rank, verdict.divergence))


def _parting(divergence: Divergence | None, suspects: tuple[int, ...]) -> Iterator[Site]:
    """The first frames, from outside, in which the stacks of cohorts differ; where they do not, the innermost."""
    cohorts = divergence.cohorts if divergence else ()
    # The stack of a rank that is behind is that of its last finished call: it is no longer there.
    framed = [(i, c) for i, c in enumerate(cohorts) if user_frames(c.stack) and c.role is not Role.BEHIND]
    framed.sort(key=lambda item: (set(item[1].ranks).isdisjoint(suspects), item[0]))
    shared = _shared([c for _, c in framed])
    for place, cohort in framed:
        frames = _outermost_first(cohort.stack)
        yield _site(frames[min(shared, len(frames) - 1)], place)


def _shared(cohorts: list[Cohort]) -> int:
    """Frames, from outside, that all have in common."""
    columns = zip(*(_outermost_first(c.stack) for c in cohorts), strict=False)
    return next((i for i, frames in enumerate(columns) if len(set(frames)) > 1), FAR_INSIDE)


FAR_INSIDE = 1_000_000
"""They never differ: the innermost frame is shown."""


def _outermost_first(stack: Stack | None) -> tuple[Frame, ...]:
    return user_frames(stack)[::-1]


def _cohort_of(rank: int, divergence: Divergence | None) -> int | None:
    cohorts = divergence.cohorts if divergence else ()
    return next((i for i, c in enumerate(cohorts) if rank in c.ranks), None)


def _site(frame: Frame, cohort: int | None) -> Site:
    return Site(frame.filename, frame.line, frame.name, cohort=cohort)
