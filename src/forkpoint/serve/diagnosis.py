"""Folder -> its page and its row in the list, by a child process."""

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.live.diagnosing import NotDiagnosed, PageTask, Task, diagnose_async
from forkpoint.model.ranks import format_ranks
from forkpoint.serve.folders import IncidentFolder

_LIMIT_S = 1800.0
"""Twice the usual limit: a shared login node may be five times as slow as the machine it was measured on."""
_MAX_RANGES = 8


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """What is kept of a diagnosis: one per incident, so only what is shown."""

    cause: str
    suspects: str
    confidence: float
    when: str | None
    """The last moment that is dated in UTC."""
    summary: str
    html: bytes


@dataclass(frozen=True, slots=True)
class Diagnoser:
    source: Sequence[str] = ()
    embed_source: bool = False
    limit_s: float = _LIMIT_S

    async def __call__(self, folder: IncidentFolder, events: str, home: str | None) -> IncidentPage | NotDiagnosed:
        task = Task((folder.path,), tuple(self.source), page=PageTask(events, home, self.embed_source))
        found = await diagnose_async(task, self.limit_s)
        if isinstance(found, NotDiagnosed):
            return found
        return IncidentPage(
            cause=found.cause,
            suspects=format_ranks(found.suspects, _MAX_RANGES),
            confidence=found.confidence,
            when=found.when,
            summary=found.summary,
            html=found.page.encode(),
        )
