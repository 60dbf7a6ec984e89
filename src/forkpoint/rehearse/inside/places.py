"""Finds the line of the user's source that makes a call."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from forkpoint.rehearse.model import CodeSite

_NOT_OURS: Final = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "/.venv/", "/forkpoint/rehearse/")
Swap = Callable[[Any, str, Callable[[Any, str], Any]], None]
"""Replaces a function, named by its owner and name, by what is made of it."""
_USER_CODE = str(Path(__file__).with_name("user_code.py"))


class CodePlaces:
    """Maps frames to sites in the user's files, with a cache."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = tuple(str(Path(root).resolve()) for root in roots)
        self._own: dict[str, str | None] = {}
        self._sites: dict[tuple[str, int], CodeSite] = {}

    def at(self, frame: FrameType) -> CodeSite | None:
        """None: the frame belongs to a library."""
        code = frame.f_code
        name = code.co_filename
        own = self._own.get(name, "")
        if own == "":
            self._own[name] = None  # `_shown` uses the file system, whose taps call `at` again
            own = self._own[name] = self._shown(name)
        if own is None:
            return None
        key = (name, frame.f_lineno)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = CodeSite(own, frame.f_lineno, code.co_name)
        return site

    def asking(self, frame: FrameType) -> CodeSite | None:
        """The caller of a tap. A function inside `try` has two wrappers, so one frame of ours may be between."""
        behind = frame.f_back if frame.f_code.co_filename == _USER_CODE else None
        return self.at(behind or frame)

    def nearest(self, frame: FrameType | None) -> CodeSite | None:
        """The innermost frame of the user's code."""
        while frame is not None:
            site = self.at(frame)
            if site is not None:
                return site
            frame = frame.f_back
        return None

    def is_own(self, filename: str) -> bool:
        return self._shown(filename) is not None

    def _shown(self, filename: str) -> str | None:
        path = str(Path(filename).resolve()) if filename and not filename.startswith("<") else filename
        if any(part in path for part in _NOT_OURS):
            return None
        for root in self._roots:
            if path.startswith(f"{root}/"):
                return path[len(root) + 1 :]
        return None


def user_modules(places: CodePlaces) -> list[Any]:
    loaded = list(sys.modules.values())
    files = [(module, getattr(module, "__file__", None)) for module in loaded]
    return [module for module, file in files if isinstance(file, str) and places.is_own(file)]
