"""Claims looked at again, without the code that checks them: a claim that passed must be true of the timeline, or the log."""

from pathlib import Path

from forkpoint.agent.claims import AnyClaim, Issued, LogSays, Missing
from forkpoint.brief.case import Case
from forkpoint.diverge.slots import token_at
from forkpoint.model.timeline import Gap, GroupTimeline
from forkpoint.model.trace import Track


def is_true(claim: AnyClaim, case: Case) -> bool | None:
    """None: a kind of claim that is not looked at here."""
    match claim:
        case Issued():
            return any(all(_issued(g, rank, claim, case) for rank in claim.ranks) for g in _groups(claim.group, case))
        case Missing():
            return any(all(_missing(g, rank, claim, case) for rank in claim.ranks) for g in _groups(claim.group, case))
        case LogSays():
            return _stands_in(claim, case)
        case _:
            return None


def _groups(name: str, case: Case) -> list[GroupTimeline]:
    """Where several share a description, facts add their name and members to it."""
    groups = case.incident.timeline.groups
    return [g for g in groups if name in (g.group.name, g.group.desc) or name.startswith(f"{g.group}")]


def _issued(group: GroupTimeline, rank: int, claim: Issued, case: Case) -> bool:
    if "send" in claim.op.lower() or "recv" in claim.op.lower():
        return any(_holds(mine, claim.seq, case) for mine, _ in _ends(group, rank, case))
    tables, track = case.incident.timeline.tables, group.track(rank)
    token = token_at(track, claim.seq, tables) if track is not None else None
    held = {_letters(s.op) for s in tables.signatures.get(token, ())} if token is not None else set()
    return any(op in _letters(claim.op) or _letters(claim.op) in op for op in held)


def _missing(group: GroupTimeline, rank: int, claim: Missing, case: Case) -> bool:
    seq = claim.seq
    if any(group.gap(member, seq) is None for member in group.group.ranks):
        return group.gap(rank, seq) is Gap.NOT_REACHED
    return any(_holds(theirs, seq, case) and not _holds(mine, seq, case) for mine, theirs in _ends(group, rank, case))


def _ends(group: GroupTimeline, rank: int, case: Case) -> list[tuple[Track | None, Track | None]]:
    """What the rank, and what its peer, recorded of each channel."""
    channels = [c for c in case.incident.timeline.channels if c.group.name == group.group.name]
    return [(c.sent, c.received) for c in channels if c.source == rank] + [
        (c.received, c.sent) for c in channels if c.destination == rank
    ]


def _holds(track: Track | None, seq: int, case: Case) -> bool:
    return track is not None and token_at(track, seq, case.incident.timeline.tables) is not None


def _letters(op: str) -> str:
    return "".join(letter for letter in op.lower() if letter.isalpha())


def _stands_in(claim: LogSays, case: Case) -> bool:
    """As facts show the line."""
    for file, _ in case.incident.capture.logs:
        lines = Path(file).read_text("utf-8", errors="replace").split("\n") if file.endswith(claim.file) else []
        line = lines[claim.line - 1] if 0 < claim.line <= len(lines) else ""
        if " ".join(claim.quote.split()) in " ".join(case.clean(line).split()):
            return True
    return False
