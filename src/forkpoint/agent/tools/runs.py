"""Compares this run with another run of the same program."""

from collections.abc import Iterator

from forkpoint.brief.case import Case, Fact
from forkpoint.brief.naming import fact
from forkpoint.diverge.cohorts import issued
from forkpoint.diverge.slots import token_at
from forkpoint.model.entries import Tables
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Incident
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks

_RANGES = 4


def compare_runs(case: Case, other: Incident, verdict: Verdict) -> Iterator[Fact]:
    """Facts about both, this run first."""
    mine = case.incident
    told = [
        (
            "verdict",
            *(
                f"{v.cause} of {name_ranks(v.suspects, _RANGES) if v.suspects else 'nobody'}"
                for v in (case.verdict, verdict)
            ),
        ),
        ("ranks", *(str(len(i.timeline.world)) for i in (mine, other))),
        ("library", *(_libraries(i) for i in (mine, other))),
        ("groups", *(", ".join(sorted(_by_name(i))) or "none" for i in (mine, other))),
    ]
    for what, here, there in told:
        says = f"the same in both: {here}" if here == there else f"this run: {here}; the other: {there}"
        yield fact(case, what, says)
    theirs = _by_name(other)
    for name, group in sorted(_by_name(mine).items()):
        if name in theirs:
            yield from _compare_groups(case, name, (group, mine), (theirs[name], other))


def _libraries(incident: Incident) -> str:
    traces = incident.timeline.traces
    return ", ".join(sorted({traces[rank].comm_lib for rank in list(traces)[:_RANGES]} - {""})) or "not known"


def _by_name(incident: Incident) -> dict[str, GroupTimeline]:
    """The first group of each name: two runs of a program create groups in the same order."""
    found: dict[str, GroupTimeline] = {}
    for group in incident.timeline.groups:
        if any(group.track(rank) for _, rank in group.kinds):
            found.setdefault(str(group.group), group)
    return found


def _compare_groups(
    case: Case, name: str, mine: tuple[GroupTimeline, Incident], other: tuple[GroupTimeline, Incident]
) -> Iterator[Fact]:
    here, there = (_furthest(group) for group, _ in (mine, other))
    if here is None or there is None:
        return
    yield fact(case, name, f"reached seq {here.last_seq} in this run, seq {there.last_seq} in the other")
    tables = [incident.timeline.tables for _, incident in (mine, other)]
    common = range(max(here.first_seq, there.first_seq), min(here.last_seq, there.last_seq) + 1)
    parted = next((s for s in common if token_at(here, s, tables[0]) != token_at(there, s, tables[1])), None)
    if parted is None:
        says = (
            f"calls are the same from seq {common.start} to {common.stop - 1}"
            if common
            else "no call is recorded in both"
        )
        yield fact(case, name, says)
        return
    calls = [_tell(track, parted, table) for track, table in zip((here, there), tables, strict=True)]
    yield fact(
        case, f"{name} seq {parted}", f"the first call that differs: {calls[0]} in this run, {calls[1]} in the other"
    )


def _furthest(group: GroupTimeline) -> Track | None:
    tracks = [track for _, rank in group.kinds if (track := group.track(rank))]
    return max(tracks, key=lambda track: track.last_seq, default=None)


def _tell(track: Track, seq: int, tables: Tables) -> str:
    signature, stack = issued(track, seq, tables)
    place = user_place(stack)
    sizes = [list(size) for size in (signature.input_sizes or signature.output_sizes)[:2]] if signature else []
    return " ".join(filter(None, [signature.op if signature else "nothing held", str(sizes) if sizes else "", place]))
