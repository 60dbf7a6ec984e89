"""For all tests: the same examples each time, and files in the order of `order.py`."""

import gc
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from order import GROUP, LONGEST, ROOT

# A loaded machine is no failure: nothing here is asserted about time. The same examples every time, so that a change is
# judged by what it changes; FORKPOINT_EXPLORE=1 looks for new ones, and for more: `make sweep`.
LENIENT = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
settings.register_profile("forkpoint", deadline=None, derandomize=True, max_examples=12, suppress_health_check=LENIENT)
settings.register_profile("explore", deadline=None, max_examples=400, suppress_health_check=LENIENT)
settings.load_profile("explore" if os.environ.get("FORKPOINT_EXPLORE") else "forkpoint")

gc.set_threshold(100_000, 50, 100)
"""Evidence is many small objects that live for one test: to look for cycles after every 700 of them takes a tenth of all time."""

sys.setrecursionlimit(10_000)
"""As the analysis of source does: Hypothesis refuses a test in which it changes."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return GROUP.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    config.option.loadscopereorder = False  # how many tests a file has says nothing of how long they take
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(ROOT).as_posix(), len(LONGEST)))


@pytest.fixture(autouse=True)
def _files_are_read_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by a fork of this process, which is large by now and slow to copy: that doubles what reading a case costs. Commands
    that tests start confine their readers, and `tests/hardened` is about that.
    """
    if "hardened" not in request.path.parts:
        monkeypatch.setattr("forkpoint.evidence.reading.can_confine", lambda: False)
