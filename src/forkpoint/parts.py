"""Parts of a diagnosis that may break one by one: what breaks costs that part alone, and is told with a report for us."""

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from forkpoint.errors import ForkpointError

if TYPE_CHECKING:
    from forkpoint.model.capture import InternalProblem

T = TypeVar("T")

_MAX_TRACE = 20_000
"""Characters: a recursion that went too deep is the same line a thousand times."""


class Parts:
    """What broke so far. No dataclass: the help of a command is printed without that module and what it loads."""

    def __init__(self, before: "Sequence[InternalProblem]" = ()) -> None:
        self.broken = list(before)

    def run(self, name: str, part: Callable[[], T], otherwise: T) -> T:
        """What `part` returns, or `otherwise`. What the user can act on goes through."""
        try:
            return part()
        except ForkpointError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest of the diagnosis stands
            self.broken.append(internal_problem(name, error))
            return otherwise


def internal_problem(part: str, error: BaseException) -> "InternalProblem":
    from forkpoint.model.capture import InternalProblem  # noqa: PLC0415 - the help of a command pays for no numpy

    told = "".join(traceback.format_exception(error))
    return InternalProblem(part, type(error).__name__, told[-_MAX_TRACE:])


def work_without_some(count: int, work: Callable[[Sequence[int]], T]) -> tuple[T, Sequence[int]] | None:
    """What `work` gives without some of `count` things, and which were left out: as few as halving finds. None where it
    breaks without any of them.
    """
    left_out: Sequence[int] = range(count)
    found = _attempt(work, left_out)
    while found is not None and len(left_out) > 1:
        middle = len(left_out) // 2
        halves = ((half, _attempt(work, half)) for half in (left_out[:middle], left_out[middle:]))
        fewer = next(((half, done) for half, done in halves if done is not None), None)
        if fewer is None:
            break
        left_out, found = fewer
    return None if found is None else (found[0], left_out)


def _attempt(work: Callable[[Sequence[int]], T], left_out: Sequence[int]) -> tuple[T] | None:
    try:
        return (work(left_out),)
    except Exception:  # noqa: BLE001 - it was told when it broke first
        return None


def bug_report(broken: "Sequence[InternalProblem]", version: str) -> str:
    """For the people who mend forkpoint: where it broke. Values of the evidence may stand in the messages of exceptions."""
    about = f"forkpoint {version}, Python {sys.version.split()[0]}, {sys.platform}"
    return "\n\n".join([about, *(f"{problem.part}\n{problem.trace}" for problem in broken)]) + "\n"
