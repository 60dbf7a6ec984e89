import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is no failure: nothing here is asserted about time. The same examples every time, so that a change is
# judged by what it changes; FORKPOINT_EXPLORE=1 looks for new ones.
settings.register_profile("forkpoint", deadline=None, derandomize=not os.environ.get("FORKPOINT_EXPLORE"))
settings.load_profile("forkpoint")

TESTS = Path(__file__).parent
LIVE = frozenset({"consensus", "controller", "guard", "lab", "run", "watch"})
"""Folders whose tests start real jobs: one of them at a time, or ranks wait for a processor and not for each other."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        item.add_marker(pytest.mark.xdist_group("live" if folder in LIVE else str(item.path)))
