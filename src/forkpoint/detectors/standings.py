"""Where ranks stood, without their dumps: live stacks, and the tracebacks with which calls ended."""

from dataclasses import dataclass

from forkpoint.detectors.blame import blames_peers
from forkpoint.detectors.cite import cite_event, cite_stack
from forkpoint.model.frames import in_side_thread, user_frames
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Evidence

UserLines = tuple[tuple[str, int], ...]
"""File and line of the user's frames, innermost first."""


@dataclass(frozen=True, slots=True)
class Standing:
    rank: int
    stack: Stack
    evidence: Evidence
    code: str = ""
    """The line of the user's innermost frame, where a traceback printed it."""

    @property
    def place(self) -> UserLines:
        return tuple((frame.filename, frame.line) for frame in user_frames(self.stack))


@fact
def find_standings(incident: Incident) -> dict[int, Standing]:
    """By rank: its live stack (of several the last file's), else the traceback of the call that its peers made fail."""
    found: dict[int, Standing] = {}
    for event in incident.capture.events:
        if event.rank is not None and event.rank not in found and _tells_place(event):
            found[event.rank] = Standing(event.rank, event.stack, cite_event(event), event.detail("code") or "")
    for live in sorted(incident.capture.stacks, key=lambda one: (one.file, one.line)):
        found[live.rank] = Standing(live.rank, live.stack, cite_stack(live))
    return found


def _tells_place(event: LogEvent) -> bool:
    """A traceback whose exception peers caused, or a person who interrupted it: where the main thread was."""
    interrupted = event.exception == "KeyboardInterrupt"
    ended = event.exception is not None and (blames_peers(event) or event.kind is LogKind.SIZES_DIFFER or interrupted)
    return ended and bool(event.stack) and not in_side_thread(event.stack)
