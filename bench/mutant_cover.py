"""A plug-in of pytest: which functions of the engine each test runs, and what it costs. Loaded by bench.mutants alone.

What tests share is forgotten before each of them, so that a test is known by all that it needs, not by what was left for it.
"""

import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

_OUT = Path(os.environ["MUTANT_COVER"])
_SOURCE = os.environ["MUTANT_SOURCE"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _forget()
    ran: set[CodeType] = set()

    def note(frame: FrameType, *_: object) -> None:
        ran.add(frame.f_code)

    began = time.process_time()
    sys.settrace(note)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        functions = {key for code in ran if (key := function_of(code)) is not None}
        line = {"test": item.nodeid.partition("[")[0], "seconds": time.process_time() - began}
        with _OUT.open("a") as out:
            out.write(json.dumps(line | {"functions": sorted(functions)}) + "\n")


def _forget() -> None:
    cases = sys.modules.get("cases")
    for name in ("read_case", "examine_case"):
        if cases is not None:
            getattr(cases, name).cache_clear()


def function_of(code: CodeType) -> str | None:
    """`judge/facts/cite.py:cite`: what is inside a function counts as that function."""
    if not code.co_filename.startswith(_SOURCE):
        return None
    return f"{code.co_filename.removeprefix(_SOURCE).lstrip('/')}:{code.co_qualname.partition('.<locals>')[0]}"
