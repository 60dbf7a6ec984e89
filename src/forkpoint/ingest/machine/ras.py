"""The answer of NCCL's RAS client, as text or JSON."""

from itertools import pairwise

from forkpoint.ingest.machine.ras_json import looks_like_json, read_json
from forkpoint.ingest.machine.ras_report import RasReport
from forkpoint.ingest.machine.ras_text import is_ras_line, read_text

_HEAD_LINES = 40
_TITLES = ("Job summary", "Communicators...")


def looks_like_ras(head: str) -> bool:
    """The file is such an answer. A log that quotes one is still a log."""
    if looks_like_json(head):
        return True
    lines = [line.strip() for line in head.split("\n") if line.strip()][:_HEAD_LINES]
    underlined = any(line.startswith(_TITLES) and below.startswith("=====") for line, below in pairwise(lines))
    return underlined or bool(lines and is_ras_line(lines[0]))


def read_ras(text: str, file: str) -> tuple[RasReport, ...]:
    """In the order of the file."""
    if looks_like_json(text[:8192]):
        return tuple(read_json(text, file))
    return tuple(read_text(text, file))
