"""Isolates the parts of a diagnosis: one that raises loses only its own result, and is reported with its traceback."""

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from forkpoint.errors import ForkpointError

if TYPE_CHECKING:
    from forkpoint.model.capture import InternalProblem

T = TypeVar("T")

_MAX_TRACE = 20_000
"""Characters: the traceback of a RecursionError repeats one line a thousand times."""


class Parts:
    """What broke so far. Not a dataclass: `forkpoint --help` must not pay for importing that module."""

    def __init__(self, before: "Sequence[InternalProblem]" = ()) -> None:
        self.broken = list(before)

    def run(self, name: str, part: Callable[[], T], otherwise: T) -> T:
        """Returns what `part` returns, or `otherwise` if it raises. A ForkpointError passes: the user can act on it."""
        try:
            return part()
        except ForkpointError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest of the diagnosis stands
            self.broken.append(internal_problem(name, error))
            return otherwise


def internal_problem(part: str, error: BaseException) -> "InternalProblem":
    from forkpoint.model.capture import InternalProblem  # noqa: PLC0415 - `--help` must not import numpy

    told = "".join(traceback.format_exception(error))
    return InternalProblem(part, type(error).__name__, told[-_MAX_TRACE:])


def work_without_some(count: int, work: Callable[[Sequence[int]], T]) -> tuple[T, Sequence[int]] | None:
    """Calls `work` with the indexes to leave out of `count` things: as few as bisection finds. Returns its result and those
    indexes; None if it raises even with everything left out.
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
    except Exception:  # noqa: BLE001 - reported when it first broke
        return None


def bug_report(broken: "Sequence[InternalProblem]", version: str) -> str:
    """For forkpoint's maintainers: where it broke. Exception messages may contain values from the evidence."""
    about = f"forkpoint {version}, Python {sys.version.split()[0]}, {sys.platform}"
    return "\n\n".join([about, *(f"{problem.part}\n{problem.trace}" for problem in broken)]) + "\n"
