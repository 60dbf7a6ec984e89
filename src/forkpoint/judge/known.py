"""Problems that others met, where a log looks like theirs: hints for what to try next, never a cause."""

from collections.abc import Iterable, Iterator

from forkpoint.kb.entry import Clue, ClueField, KnownProblem
from forkpoint.kb.load import known
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent


def known_hints(incident: Incident) -> tuple[str, ...]:
    """None where ranks' own records show how they parted: what they did goes before what others' logs looked like."""
    events = incident.capture.events
    if not events or incident.divergence is not None:
        return ()
    found = [one.entry for one in known() if _looks_like(one, events)]
    return tuple(f"maybe known (no proof): {entry.do[0]} (forkpoint explain {entry.query})" for entry in found)


def _looks_like(problem: KnownProblem, events: Iterable[LogEvent]) -> bool:
    shown = all(any(_fits(clue, event) for event in events) for clue in problem.shows)
    return shown and not any(_fits(clue, event) for clue in problem.unless for event in events)


def _fits(clue: Clue, event: LogEvent) -> bool:
    return all(
        any(_is_said(place, word, said) for said in _says(place, event) for word in words)
        for place, words in clue.words
    )


def _is_said(place: ClueField, word: str, said: str) -> bool:
    """Of a frame the word may be a part; everything else is the whole."""
    return word in said if place is ClueField.FRAME else word == said


def _says(place: ClueField, event: LogEvent) -> Iterator[str]:
    if place is ClueField.KIND:
        yield event.kind
    elif place is ClueField.PATTERN:
        yield event.pattern
    elif place is ClueField.FRAME:
        yield from (f"{frame.filename} {frame.name}" for frame in event.stack)
    elif event.work is not None:
        value = {ClueField.OP: event.work.op, ClueField.SEQ: event.work.seq, ClueField.NUMEL: event.work.numel_in}[
            place
        ]
        yield str(value)
