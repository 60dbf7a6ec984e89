"""Taps on files: which exist, what is in a folder, what is read and written, and how much room is left."""

import builtins
import errno
import glob
import os
import pathlib
import resource
import shutil
import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from forkpoint.rehearse.inside.places import CodePlaces, Swap
from forkpoint.rehearse.listening import Listener

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller

_QUESTIONS: Final = (
    *((os.path, name) for name in ("exists", "isfile", "isdir")),
    *((pathlib.Path, name) for name in ("exists", "is_file", "is_dir")),
)
_STATS: Final = ((os, "stat"), (os.path, "getmtime"), (os.path, "getsize"), (pathlib.Path, "stat"))
_LISTS: Final = ((os, "listdir"), (glob, "glob"), (pathlib.Path, "iterdir"), (pathlib.Path, "glob"))
_MAKES: Final = (
    *((pathlib.Path, name) for name in ("write_text", "write_bytes", "mkdir")),
    *((os, name) for name in ("makedirs", "mkdir")),
)
_WRITES: Final = frozenset("wax+")


class FileTaps:
    def __init__(self, listener: Listener, places: CodePlaces) -> None:
        self._listener = listener
        self._places = places

    def open(self, swap: Swap) -> None:
        for makes, places in (
            (self._question, _QUESTIONS),
            (self._stat, _STATS),
            (self._list, _LISTS),
            (self._write, _MAKES),
        ):
            for owner, name in places:
                swap(owner, name, makes)
        swap(builtins, "open", self._open)
        swap(pathlib.Path, "open", self._open)
        swap(torch, "save", self._save)
        swap(torch, "load", self._load)
        for (owner, name), full in full_answers().items():
            swap(owner, name, self._room(full))

    def _question(self, original: Any, name: str) -> Any:
        del name
        at, listener = self._places.asking, self._listener

        def question(path: Any, *args: Any, **named: Any) -> bool:
            there = original(path, *args, **named)
            site = at(_frame(1))
            return there if site is None else listener.exists(site, str(path), bool(there))

        return question

    def _stat(self, original: Any, _name: str) -> Any:
        """A hidden file raises FileNotFoundError; a file that only this rank sees gets the stat of this module's file."""
        at, listener = self._places.asking, self._listener

        def stat(path: Any, *args: Any, **named: Any) -> Any:
            site = at(_frame(1)) if isinstance(path, (str, os.PathLike)) else None
            if site is None:
                return original(path, *args, **named)
            try:
                found = original(path, *args, **named)
            except FileNotFoundError:
                if not listener.exists(site, os.fspath(path), there=False):
                    raise
                return original(pathlib.Path(__file__) if isinstance(path, pathlib.Path) else __file__, *args, **named)
            if not listener.exists(site, os.fspath(path), there=True):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
            return found

        return stat

    def _open(self, original: Any, _name: str) -> Any:
        at, listener = self._places.asking, self._listener

        def opened(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            site = at(_frame(1))
            if site is not None and _WRITES.intersection(mode) and isinstance(file, (str, os.PathLike)):
                listener.writing(site, os.fspath(file))
            return original(file, mode, *args, **named)

        return opened

    def _write(self, original: Any, _name: str) -> Any:
        at, listener = self._places.asking, self._listener

        def write(path: Any, *args: Any, **named: Any) -> Any:
            site = at(_frame(1))
            if site is not None:
                listener.writing(site, str(path))
            return original(path, *args, **named)

        return write

    def _list(self, original: Any, _name: str) -> Any:
        at, listener = self._places.asking, self._listener

        def listed(path: Any = ".", *args: Any, **named: Any) -> Any:
            names = original(path, *args, **named)
            site = at(_frame(1))
            return names if site is None else listener.listing(site, str(path), list(names))

        return listed

    def _save(self, original: Any, _name: str) -> Any:
        def save(obj: Any, f: Any, *args: Any, **named: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                self._listener.saving(self._places.nearest(_frame(1)), os.fspath(f))
            return original(obj, f, *args, **named)

        return save

    def _load(self, original: Any, _name: str) -> Any:
        def load(f: Any, *args: Any, **named: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                f = self._listener.loading(self._places.nearest(_frame(1)), os.fspath(f))
            return original(f, *args, **named)

        return load

    # ---------------------------------------------------------------------------------------------------------------- room

    def _room(self, full: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
        at, listener = self._places.asking, self._listener

        def tap(original: Any, name: str) -> Any:
            def room(*args: Any, **named: Any) -> Any:
                told = original(*args, **named)
                site = at(_frame(1))
                return told if site is None else listener.room(site, name, told, full)

            return room

        return tap


def full_answers() -> dict[tuple[Any, str], Callable[[Any], Any]]:
    """For each question how much room there is, the answer where nothing is left."""
    memory_kib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 10
    answers: dict[tuple[Any, str], Callable[[Any], Any]] = {
        (shutil, "disk_usage"): lambda told: told._replace(used=told.total, free=0),
        (os, "statvfs"): lambda told: os.statvfs_result((*told[:3], 0, 0, *told[5:])),
        (resource, "getrusage"): lambda told: resource.struct_rusage((*told[:2], memory_kib, *told[3:])),
        (torch.cuda, "mem_get_info"): lambda told: (0, told[1]),
    }
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        answers[torch.cuda, name] = lambda told: torch.cuda.mem_get_info()[1] if told else told
    return answers
