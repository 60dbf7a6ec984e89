"""Claims looked at again, without the code that checks them: a claim that passed must be true of the timeline."""

from forkpoint.agent.case import Case
from forkpoint.agent.claims import AnyClaim, Issued, LogSays, Missing
from forkpoint.align.slots import token_at
from forkpoint.model.timeline import Gap, GroupTimeline


def is_true(claim: AnyClaim, case: Case) -> bool | None:
    """None: a kind of claim that is not looked at here."""
    match claim:
        case Issued():
            return any(all(_issued(g, rank, claim, case) for rank in claim.ranks) for g in _groups(claim.group, case))
        case Missing():
            return any(_is_missing(g, claim, case) for g in _groups(claim.group, case))
        case LogSays():
            return _stands_in(claim, case)
        case _:
            return None


def _groups(name: str, case: Case) -> list[GroupTimeline]:
    return [
        g
        for g in case.incident.timeline.groups
        if name in (g.group.name, g.group.desc) or name.startswith(str(g.group))
    ]


def _letters(op: str) -> str:
    return "".join(letter for letter in op.lower() if letter.isalpha())


def _issued(group: GroupTimeline, rank: int, claim: Issued, case: Case) -> bool:
    tables = case.incident.timeline.tables
    track = group.track(rank)
    token = token_at(track, claim.seq, tables) if track is not None else None
    held = [s.op for s in tables.signatures.get(token, ())] if token is not None else []
    return any(_letters(op) in _letters(claim.op) or _letters(claim.op) in _letters(op) for op in held) or _messages(
        group, rank, claim.seq, case
    )


def _is_missing(group: GroupTimeline, claim: Missing, case: Case) -> bool:
    behind = all(group.gap(rank, claim.seq) is Gap.NOT_REACHED for rank in claim.ranks)
    somebody = any(group.gap(rank, claim.seq) is None for rank in group.group.ranks)
    by_message = any(not _messages(group, rank, claim.seq, case) for rank in claim.ranks)
    return (behind and somebody) or by_message


def _messages(group: GroupTimeline, rank: int, seq: int, case: Case) -> bool:
    """Whether a rank has a message of that number on one of its channels."""
    timeline = case.incident.timeline
    ends = [c.end(rank) for c in timeline.channels if c.group.name == group.group.name]
    return any(track is not None and token_at(track, seq, timeline.tables) is not None for track in ends)


def _stands_in(claim: LogSays, case: Case) -> bool:
    """As facts show the line."""
    files = [file for file, _ in case.incident.capture.logs if file.endswith(claim.file)]
    for file in files:
        with open(file, encoding="utf-8", errors="replace") as log:  # noqa: PTH123 a name as evidence has it
            lines = log.read().splitlines()
        line = lines[claim.line - 1] if 0 < claim.line <= len(lines) else ""
        if " ".join(claim.quote.split()) in " ".join(case.clean(line).split()):
            return True
    return False
