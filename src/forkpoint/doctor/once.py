"""Each question to the machine is asked once, even if several checks ask at the same time."""

from collections import defaultdict
from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def once(function: Callable[P, T]) -> Callable[P, T]:
    """Like functools.cache, except that threads which ask together wait for one answer instead of asking each."""
    locks: defaultdict[object, Lock] = defaultdict(Lock)
    answers: dict[object, T] = {}
    entry = Lock()

    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(kwargs.items()))
        with entry:
            lock = locks[key]
        with lock:
            if key not in answers:
                answers[key] = function(*args, **kwargs)
            return answers[key]

    return ask
