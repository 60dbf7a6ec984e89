"""Which ranks stand at the same place."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from forkpoint.ingest.live_stacks.shapes import Shape, find_last_call, find_shape
from forkpoint.ingest.live_stacks.threads import UNNAMED, ends_in_program, has_python
from forkpoint.model.frames import bare_name, is_python, is_user_code, place_of
from forkpoint.model.op import Frame, Stack


@dataclass(frozen=True, slots=True)
class Cluster:
    ranks: tuple[int, ...]
    shape: Shape
    stack: Stack
    """Of its lowest rank."""


class Standing(Protocol):
    """A rank's stack and where it was read."""

    @property
    def rank(self) -> int | None: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def stack(self) -> Stack: ...


def cluster(stacks: Sequence[Standing]) -> tuple[Cluster, ...]:
    """Largest first. A rank without a number or a main thread is in none, nor one whose stack cannot be compared; of a
    rank that comes twice, the file whose name sorts last counts (dumps are named by time). The order of the input does
    not matter.
    """
    latest: dict[int, Standing] = {}
    for one in sorted(_comparable(stacks), key=_file_and_line):
        if one.rank is not None:
            latest[one.rank] = one
    together: dict[_Place, list[int]] = defaultdict(list)
    for rank in sorted(latest):
        together[_place(latest[rank].stack)].append(rank)
    found = [Cluster(tuple(ranks), place[0], latest[ranks[0]].stack) for place, ranks in together.items()]
    return tuple(sorted(found, key=lambda c: (-len(c.ranks), c.ranks)))


_Place = tuple[Shape, str, tuple[tuple[str, str, int], ...]]
"""Shape, the library function that the user's code called, the user's frames."""
_WRAPPERS = ("/torch/distributed/c10d_logger.py", "/torch/utils/_contextlib.py", "/contextlib.py", "/functools.py")


def _comparable(stacks: Sequence[Standing]) -> list[Standing]:
    """Where some stacks show the whole program in Python, those without it (cut, too deep, native) would only look odd."""
    whole = [one for one in stacks if has_python(one.stack) and ends_in_program(one.stack)]
    return whole or [one for one in stacks if one.stack]


def _file_and_line(one: Standing) -> tuple[str, int]:
    return one.file, one.line


@lru_cache(maxsize=1024)
def _place(stack: Stack) -> _Place:
    """Folders do not count, nor lines inside libraries: a rank that polls is seen at several of them. Kept, because most
    of many ranks have one of few stacks.
    """
    user = tuple(_short(frame, frame.line) for frame in stack if is_user_code(frame))
    if user:
        return find_shape(stack), _entered(stack), user
    shown = [frame for frame in stack if is_python(frame)] or [frame for frame in stack if frame.name != UNNAMED]
    return find_shape(stack), "", tuple(_short(frame, 0) for frame in shown)


def _entered(stack: Stack) -> str:
    call = [frame for frame in find_last_call(stack) if is_python(frame)]
    named = (frame for frame in reversed(call) if not place_of(frame).endswith(_WRAPPERS))
    return next((bare_name(frame) for frame in named), "")


def _short(frame: Frame, line: int) -> tuple[str, str, int]:
    return place_of(frame).rpartition("/")[2], bare_name(frame), line
