"""Which test files run first, and which in the same process."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/controller/test_jobs_of_a_controller.py",
    "tests/guard/test_live.py",
    "tests/web/test_page.py",
    "tests/agent/test_agent_command.py",
    "tests/run/test_torchrun_jobs.py",
    "tests/cluster/test_commands.py",
    "tests/agent/test_providers.py",
    "tests/test_cases.py",
    "tests/lab/test_record.py",
    "tests/lab/test_collectives_ranks.py",
    "tests/watch/test_running_job.py",
    "tests/test_remedies.py",
    "tests/guard/test_vote.py",
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
        "tests/agent/test_mcp.py",
        "tests/test_hypotheses.py",
        "tests/test_moments.py",
        "tests/test_schema.py",
        "tests/test_stragglers.py",
        "tests/attach/test_moving.py",
        "tests/packed/test_summary_file.py",
        "tests/property/test_other_forms.py",
        "tests/report/test_fork_svg.py",
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
    "pages in a browser": (
        "tests/web/test_page.py",
        "tests/web/test_arrivals.py",
        "tests/web/test_golden.py",
        "tests/web/test_history_page.py",
        "tests/web/test_hostile_page.py",
        "tests/web/test_hypotheses.py",
        "tests/web/test_keyboard.py",
        "tests/web/test_scale.py",
    ),
    "real servers": (
        "tests/real/test_slurm_jobs.py",
        "tests/real/test_slurm.py",
        "tests/real/test_ssh.py",
        "tests/real/test_full_disk.py",
        "tests/real/test_object_store.py",
    ),
}
"""One worker runs all files of a group: it examines each recorded case once, imports providers' clients once, and does
something else while clusters wait; the browser, and the cluster of real servers, are started once."""

GROUP = {file: group for group, files in TOGETHER.items() for file in files}
