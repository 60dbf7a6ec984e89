"""Training logs from any launcher: `read_log` reads one log."""

from forkpoint.evidence.archives import ArchiveMember, UnpackBudget, open_members
from forkpoint.evidence.logs.events import LeftOut, LogReading
from forkpoint.evidence.logs.patterns import Pattern, match_line, patterns
from forkpoint.evidence.logs.read import read_log
from forkpoint.model.log import Counters, Group, LogEvent, LogKind, Speaker, Work

__all__ = [
    "ArchiveMember",
    "Counters",
    "Group",
    "LeftOut",
    "LogEvent",
    "LogKind",
    "LogReading",
    "Pattern",
    "Speaker",
    "UnpackBudget",
    "Work",
    "match_line",
    "open_members",
    "patterns",
    "read_log",
]
