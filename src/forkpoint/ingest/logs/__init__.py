"""Training logs, whoever launched the job: `read_log` for one log, `open_members` for packed ones."""

from forkpoint.ingest.logs.archives import Budget, Member, open_members
from forkpoint.ingest.logs.events import LeftOut, LogReading
from forkpoint.ingest.logs.patterns import Pattern, match_line, patterns
from forkpoint.ingest.logs.read import read_log
from forkpoint.model.log import Counters, Group, LogEvent, LogKind, Speaker, Work

__all__ = [
    "Budget",
    "Counters",
    "Group",
    "LeftOut",
    "LogEvent",
    "LogKind",
    "LogReading",
    "Member",
    "Pattern",
    "Speaker",
    "Work",
    "match_line",
    "open_members",
    "patterns",
    "read_log",
]
