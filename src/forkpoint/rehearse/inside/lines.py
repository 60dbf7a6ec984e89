"""Records every line of the user's code that the main thread executes."""

import sys
from types import FrameType
from typing import Any

from forkpoint.rehearse.inside.places import Places
from forkpoint.rehearse.paths import PathFile


def follow(path: PathFile, places: Places) -> None:
    """Also follows frames that are already running: the training loop may be one of them."""

    def local(frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            site = places.at(frame)
            if site is not None:
                path.add(path.number_of(site.file), site.line)
        return local

    def entered(frame: FrameType, _event: str, _arg: Any) -> Any:
        return local if places.at(frame) is not None else None

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 documented
    while frame is not None:
        if places.at(frame) is not None:
            frame.f_trace = local
        frame = frame.f_back
    sys.settrace(entered)
