"""Stacks -> the source of the job, if it is on this machine and matches their lines.

A stack names the function of each of its lines. Source in which a line is not in that function is another version, and
is not used. Paths in evidence are only opened as Python files, which are read and never run.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath

from forkpoint.model.frames import user_frames
from forkpoint.model.op import Stack

_CODE_FOLDERS = ("", "source", "src", "code")
"""Names of folders inside or next to a folder with evidence."""
_MAX_STACKS = 2_000
_MAX_PARTS = 4
"""How many parts at the end of a path are searched for elsewhere."""
_MAX_FILES = 400
"""A folder with more Python files is not read as a whole: only the files that stacks name."""
_MAX_FOLDERS = 200


def find_source(stacks: Iterable[Stack], near: Sequence[str]) -> tuple[str, ...]:
    """Folders, or files if the folder is too large. Empty if nothing is found, or if what is found does not match.

    `near`: files or folders whose surroundings are searched, in addition to the places that the stacks name.
    """
    held = [stack for stack in islice(stacks, _MAX_STACKS) if user_frames(stack)]
    names = dict.fromkeys(frame.filename for stack in held for frame in user_frames(stack))
    bases = list(_bases(near))
    files = dict.fromkeys(found for name in names if (found := _find(name, bases)))
    return tuple(_roots(_matching(list(files), held))) if files else ()


def _bases(near: Sequence[str]) -> Iterator[Path]:
    """The folder of each file, its parent, and their source folders; then the current folder."""
    for path in near:
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        for base in (folder, folder.resolve().parent):
            yield from (base / name for name in _CODE_FOLDERS if (base / name).is_dir())
    yield Path()


def _find(filename: str, bases: Sequence[Path]) -> str | None:
    """The file itself, else the longest end of its path that exists below one of the bases."""
    if not filename.endswith(".py") or "\0" in filename:
        return None
    own = Path(filename)
    if own.is_absolute() and own.is_file():
        return str(own)
    parts = [part for part in PurePath(filename).parts if part not in ("/", "..", ".")][-_MAX_PARTS:]
    for count in range(len(parts), 0, -1):
        for base in bases:
            found = base.joinpath(*parts[-count:])
            if found.is_file():
                return str(found)
    return None


def _matching(files: Sequence[str], stacks: Sequence[Stack]) -> list[str]:
    """Empty if a line of any stack is not in the function that the stack names."""
    from forkpoint.source.bridge.sides import StackMap  # noqa: PLC0415 - most jobs lie elsewhere: only what is found is read
    from forkpoint.source.program import read_program  # noqa: PLC0415 - as above

    places = StackMap(read_program(files))
    used = {place.function.module.path for stack in stacks for place in places.chain(stack)}
    return [] if places.misfits else [file for file in files if file in used]


def _roots(files: Sequence[str]) -> Iterator[str]:
    """Their folders, each once; none that is inside another."""
    folders = sorted({str(Path(file).parent) for file in files}, key=len)
    outer = [f for place, f in enumerate(folders) if not any(Path(f).is_relative_to(o) for o in folders[:place])]
    for folder in outer:
        inside = [file for file in files if Path(file).is_relative_to(folder)]
        yield from [folder] if _is_small(folder) else inside


def _is_small(folder: str) -> bool:
    from forkpoint.source.program import find_files  # noqa: PLC0415 - as above

    folders = sum(1 for _ in islice(os.walk(folder), _MAX_FOLDERS))
    return folders < _MAX_FOLDERS and sum(1 for _ in islice(find_files(folder), _MAX_FILES)) < _MAX_FILES
