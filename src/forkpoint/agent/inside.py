"""Files of a case are named relative to what was given: where the case lies is not shown."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path


def name_inside(paths: Sequence[str]) -> Callable[[str], str]:
    """Takes the folders that were given out of a text; where several were, their own names stay."""
    folders = dict.fromkeys(path.rstrip("/") if Path(path).is_dir() else str(Path(path).parent) for path in paths)
    told = {
        folder: "" if len(folders) == 1 else f"{Path(folder).name}/" for folder in folders if folder not in {"", "."}
    }
    if not told:
        return str
    longest_first = sorted(told, key=len, reverse=True)
    given = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})/")
    return lambda text: given.sub(lambda match: told[match[1]], text)
