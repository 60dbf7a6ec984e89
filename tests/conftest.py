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
    "tests/controller/test_jobs_of_a_controller.py",
    "tests/guard/test_live.py",
    "tests/agent/test_agent_command.py",
    "tests/run/test_torchrun_jobs.py",
    "tests/cluster/test_commands.py",
    "tests/agent/test_providers.py",
    "tests/test_cases.py",
    "tests/lab/test_record.py",
    "tests/lab/test_collectives_ranks.py",
    "tests/web/test_page.py",
    "tests/watch/test_running_job.py",
    "tests/test_remedies.py",
    "tests/guard/test_vote.py",
    "tests/guard/test_torchrun.py",
    "tests/consensus/test_consensus.py",
    "tests/replicas/test_replicas.py",
)
"""They wait for jobs or a browser, or begin a long group: begun first, they are done when the rest is."""

TOGETHER = {
    "recorded cases": (
        "tests/test_cases.py",
        "tests/test_stands.py",
        "tests/test_detectors.py",
        "tests/test_bridge.py",
        "tests/test_headlines.py",
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
    ),
    "the agent's command": (
        "tests/agent/test_agent_command.py",
        "tests/agent/test_agent_report.py",
        "tests/agent/test_evaluation.py",
        "tests/agent/test_injection.py",
        "tests/agent/test_replay.py",
        "tests/agent/test_transcript.py",
    ),
    "providers": (
        "tests/agent/test_provider_faults.py",
        "tests/agent/test_providers.py",
        "tests/agent/test_scripted_server.py",
        "tests/agent/test_workflow.py",
        "tests/agent/test_workflow_any_model.py",
        "tests/agent/test_workflow_hypothesis.py",
        "tests/agent/test_workflow_limits.py",
    ),
    "clusters": (
        "tests/cluster/test_commands.py",
        "tests/cluster/test_diagnose_cluster.py",
        "tests/cluster/test_monarch.py",
        "tests/cluster/test_ray.py",
        "tests/cluster/test_tree.py",
    ),
}
"""One worker runs all files of a group: it examines each recorded case once, imports providers' clients once, and does
something else while clusters wait."""

GROUP = {file: group for group, files in TOGETHER.items() for file in files}


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
