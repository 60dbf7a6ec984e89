"""For all tests: the same examples each time, and which files run first and in the same worker."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# A loaded machine is no failure: nothing here is asserted about time. The same examples every time, so that a change is
# judged by what it changes; FORKPOINT_EXPLORE=1 looks for new ones, and for more: `make sweep`.
settings.register_profile("forkpoint", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("explore", deadline=None, max_examples=400)
settings.load_profile("explore" if os.environ.get("FORKPOINT_EXPLORE") else "forkpoint")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/guard/test_live.py",
    "tests/controller/test_jobs_of_a_controller.py",
    "tests/test_remedies.py",
    "tests/run/test_torchrun_jobs.py",
    "tests/lab/test_collectives_ranks.py",
    "tests/lab/test_record.py",
    "tests/cluster/test_commands.py",
    "tests/web/test_page.py",
)
"""They wait for jobs or a browser: begun first, they are done when the rest is."""

TOGETHER = frozenset(
    {
        "tests/test_cases.py",
        "tests/test_stands.py",
        "tests/test_detectors.py",
        "tests/test_bridge.py",
        "tests/pictures/test_heat.py",
        "tests/pictures/test_states.py",
        "tests/collect/test_bundle.py",
        "tests/remedies/test_patches.py",
        "tests/agent/test_claims.py",
        "tests/agent/test_claims_timeline.py",
        "tests/agent/test_catalogue.py",
        "tests/agent/test_injection_liar.py",
        "tests/agent/test_similar.py",
        "tests/agent/test_log_text.py",
        "tests/agent/test_tools.py",
        "tests/agent/test_tools_source.py",
    }
)
"""They look at every recorded case: one worker examines each case once for all of them."""


class ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "recorded cases" if file in TOGETHER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    config.option.loadscopereorder = False  # how many tests a file has says nothing of how long they take
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(ROOT).as_posix(), len(LONGEST)))
