"""Taps on calls inside `try`: the listener may raise what is caught there."""

import functools
import pathlib
import sys
from types import FunctionType
from typing import Any, Final

from forkpoint.rehearse.inside.places import (
    CodePlaces,
    TryTable,
    dotted,
    find_guarded_calls,
    look_up,
    parse,
    user_modules,
)
from forkpoint.rehearse.listening import Listener

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller
_PATH_READS: Final = ("open", "read_bytes", "read_text")


class TryTaps:
    def __init__(self, places: CodePlaces, listener: Listener) -> None:
        self._places, self._listener, self._tries = places, listener, TryTable()

    def tell(self, frame: Any, call: str) -> None:
        site = self._places.at(frame)
        catches = self._tries.catches(frame) if site is not None else ()
        if site is not None and catches:
            self._listener.guarded(site, call, catches)

    def tap(self, module: Any) -> None:
        wanted = {name for call in find_guarded_calls(parse(module.__file__)) if (name := dotted(call.func))}
        for name in sorted(wanted):
            if "." not in name:
                self._guard_function(module.__dict__, name, look_up(name, module.__dict__))
                continue
            base, _, last = name.rpartition(".")
            owner = look_up(base, module.__dict__)
            if type(owner) is type(module):
                self._guard_function(owner.__dict__, last, getattr(owner, last, None))
            elif owner is None or not isinstance(owner, type):
                self._guard_method(last)

    def _guard_method(self, name: str) -> None:
        """A method of an object of unknown type: taps that method in all of the user's classes, and of paths."""
        kinds = [
            v for module in user_modules(self._places) for v in list(module.__dict__.values()) if isinstance(v, type)
        ]
        for kind in kinds:
            method = vars(kind).get(name)
            if isinstance(method, FunctionType) and self._places.is_own(method.__code__.co_filename):
                setattr(kind, name, self._guarded(method, name))
        if name in _PATH_READS:
            setattr(pathlib.Path, name, self._guarded(getattr(pathlib.Path, name), name))

    def _guard_function(self, names: dict[str, Any], name: str, function: Any) -> None:
        """Only functions: a wrapped class would no longer be a class. Not functions that communicate: a failing network is not
        what we rehearse a `try` for.
        """
        where = getattr(function, "__module__", None) or ""
        plain = callable(function) and not isinstance(function, type)
        if plain and not where.startswith(("torch.distributed", "torch._C", "forkpoint")):
            names[name] = self._guarded(function, name)

    def _guarded(self, function: Any, name: str) -> Any:
        if getattr(function, "_rehearsed", False):
            return function

        @functools.wraps(function)
        def guarded(*args: Any, **named: Any) -> Any:
            self.tell(_frame(1), name)
            return function(*args, **named)

        guarded._rehearsed = True  # type: ignore[attr-defined] # noqa: SLF001 our own mark
        return guarded
