"""Refuses collectives in code that one rank runs alone, before they are issued."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from forkpoint.consensus.each_collective import EachCollective
from forkpoint.consensus.errors import CollectiveInRankZero
from forkpoint.consensus.members import Members

_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@contextmanager
def refuse_collectives(where: str, members: Members) -> Generator[None]:
    if members.size == 1:
        yield
        return
    with _Refuse(where, members.rank):
        yield


class _Refuse(EachCollective):
    def __init__(self, where: str, rank: int) -> None:
        super().__init__()
        self._where, self._rank = where, rank

    def before(self, op: Any, group: object, args: object, kwargs: object) -> None:
        del group, args, kwargs
        raise CollectiveInRankZero(
            f"{op} at {_place(sys._getframe())}: {self._where} runs on rank {self._rank} alone, "  # noqa: SLF001 - `inspect` does the same
            "so the other ranks of the group would never come to it"
        )


def _place(frame: FrameType | None) -> str:
    """The innermost line that is not torch's or ours."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return "a thread of torch's own" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
