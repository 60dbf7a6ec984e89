"""How the processes of a job ended, as a table: what `kubectl get pods -o custom-columns=...`, a scheduler's record or a person
wrote, with a column for the rank and one for the exit code.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from forkpoint.model.log import LogEvent, LogKind

_COLUMNS = re.compile(r"\t+| {2,}")
_RANK = re.compile(r"(?:global[ _])?rank", re.IGNORECASE)
_CODE = re.compile(r"exit(?:[ _-]?code|[ _-]?status)?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,7}")
_HEAD = 2000
_SIGNALLED = 128
"""Shells and containers tell of a signal as this plus its number."""


class _Columns(Struct, frozen=True):
    rank: int
    code: int
    count: int


def _columns(header: str) -> _Columns | None:
    cells = _COLUMNS.split(header.strip())
    ranks = [at for at, cell in enumerate(cells) if _RANK.fullmatch(cell)]
    codes = [at for at, cell in enumerate(cells) if _CODE.fullmatch(cell)]
    return _Columns(ranks[0], codes[0], len(cells)) if len(ranks) == len(codes) == 1 else None


def read_exit_table(text: str, name: str) -> Iterator[LogEvent]:
    """Nothing, if the first line is no such header. A row that does not fit is left out. Exit codes of signals are told as Python
    does: -9.
    """
    columns = _columns(text[:_HEAD].partition("\n")[0])
    if columns is None:
        return
    for number, row in enumerate(text.splitlines()[1:], 2):
        cells = _COLUMNS.split(row.strip())
        if len(cells) != columns.count or not all(_NUMBER.fullmatch(cells[at]) for at in (columns.rank, columns.code)):
            continue
        code = int(cells[columns.code])
        told = _SIGNALLED - code if code > _SIGNALLED else code
        yield LogEvent(
            LogKind.EXITED, name, number, int(cells[columns.rank]), " ".join(cells), details=(("code", str(told)),)
        )
