"""Stacks as `py-spy dump --json` prints them: a list of one process's threads, each with its frames, innermost first."""

import json
import re
from typing import cast

from forkpoint.evidence.stacks.threads import MAX_FRAMES, MAX_THREADS, UNNAMED, Draft, Thread, latest_dump
from forkpoint.evidence.text import clean

_LIST = re.compile(r"\s{0,100}\[\s{0,100}\{")
_THREAD = re.compile(r'"thread_id"\s{0,20}:')
"""Inside a string its closing quote would be escaped."""


def looks_like_json(head: str) -> bool:
    return bool(_LIST.match(head)) and '"thread_id"' in head and '"frames"' in head


def read_threads(text: str) -> list[Thread]:
    """Nothing where the text is not whole: a list that was cut is not JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    entries = cast("list[object]", found)[:MAX_THREADS]
    lines = _header_lines(text)
    drafts = [_read_thread(entry, lines[min(i, len(lines) - 1)]) for i, entry in enumerate(entries)]
    return latest_dump([draft for draft in drafts if draft])


def _header_lines(text: str) -> list[int]:
    lines: list[int] = []
    at, number = 0, 1
    for found in _THREAD.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        lines.append(number)
        if len(lines) == MAX_THREADS:
            break
    return lines or [1]


def _read_thread(entry: object, line: int) -> Draft | None:
    thread = _object(entry)
    frames = thread.get("frames")
    if not isinstance(frames, list):
        return None
    name = thread.get("thread_name")
    draft = Draft(
        line,
        f"{thread.get('pid')} {thread.get('thread_id')}",
        name=clean(name) if isinstance(name, str) else None,
        state="active" if thread.get("active") is True else "idle",
        holds_gil=thread.get("owns_gil") is True,
    )
    for frame in cast("list[object]", frames)[:MAX_FRAMES]:
        _take(_object(frame), draft)
    return draft


def _take(frame: dict[str, object], thread: Draft) -> None:
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    if isinstance(name, str) and isinstance(file, str):
        number = line if isinstance(line, int) and 0 < line < 10**9 else 0
        thread.add(UNNAMED if name.startswith("0x") else name, file, number)


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
