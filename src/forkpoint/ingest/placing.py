"""Text files by their place: which attempt of the job they are of, and whose they are where only the path suggests it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from forkpoint.ingest.admission import Choice, attempt_of
from forkpoint.ingest.naming import without_numbers
from forkpoint.model.capture import SetAside
from forkpoint.model.log import LogEvent

if TYPE_CHECKING:
    from forkpoint.ingest.text_files import TextReading


def keep_one_attempt(
    texts: "Sequence[TextReading]", choice: Choice
) -> "tuple[Sequence[TextReading], tuple[SetAside, ...]]":
    """Of files under `attempt_0`, `attempt_1`, ...: those of the first that failed, or of the one asked for. What failed
    later failed after it. Files that name no attempt are of any.
    """
    labels = {attempt_of(text.file) for text in texts}
    attempts = sorted(one for one in labels if not any(_is_part(one, other) for other in labels - {one}))
    if len(attempts) < 2 or choice.everything:
        return texts, ()
    failed = {attempt_of(text.file) for text in texts if any(event.is_failure for event in text.events)}
    judged = next((label for label in attempts if label in failed), attempts[0])
    if choice.attempt is not None:
        judged = attempts[min(choice.attempt, len(attempts) - 1)]
    others = [t for t in texts if not _is_part(attempt_of(t.file), judged) and t.file not in choice.use]
    why = f"and attempt {judged[-1]} is judged (--attempt)"
    aside = tuple(SetAside(t.file, None, f"from attempt {attempt_of(t.file)[-1]}, {why}") for t in others)
    left_out = {text.file for text in others}
    return [text for text in texts if text.file not in left_out], aside


def _is_part(outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """A folder of the first holds that of the second: what a launcher logs for all its restarts."""
    return inner[: len(outer)] == outer


def believe_places(texts: "Sequence[TextReading]", world: frozenset[int]) -> "list[TextReading]":
    """A rank that only the path suggests counts unless a line of any file of that form names another one, two files of one
    form and name claim it (two nodes have local ranks alike), or the job has no such rank.
    """
    wrong = {without_numbers(text.file) for text in texts if text.misplaced}
    claims = Counter((_name(text.file), text.placed) for text in texts if text.placed is not None)
    wrong |= {without_numbers(t.file) for t in texts if t.placed is not None and claims[_name(t.file), t.placed] > 1}
    return [
        _disowned(text)
        if text.placed is not None and (without_numbers(text.file) in wrong or (world and text.placed not in world))
        else text
        for text in texts
    ]


def _name(file: str) -> str:
    return without_numbers(file.rpartition("/")[2])


def _disowned(text: "TextReading") -> "TextReading":
    """The text without the rank that only its place suggested."""
    logs = [(file, None if rank == text.placed else rank) for file, rank in text.logs]
    named = [log for log in logs if log[1] is not None]
    return replace(
        text,
        events=[_of_nobody(event, text.placed) for event in text.events],
        stacks=[stack for stack in text.stacks if stack.rank != text.placed],
        logs=named or logs,
    )


def _of_nobody(event: LogEvent, rank: int | None) -> LogEvent:
    return replace(event, rank=None) if event.rank == rank and event.speaker.rank is None else event
