"""The nodes of a running Slurm job: one step with one task on each, beside the job, that takes none of its resources."""

from collections.abc import Sequence

from forkpoint.cluster.commands import Commands
from forkpoint.collect.call import Failed
from forkpoint.collect.transports.srun import parse_srun
from forkpoint.errors import UsageError

_LISTING_S = 60.0


def open_slurm(job: str | None, hosts: Sequence[str], node_timeout_s: float, python: str) -> Commands:
    """All nodes of the job, or those of it that are named. Raises UsageError."""
    if not job:
        raise UsageError("--cluster slurm needs --jobid N: the job whose nodes hold the dumps, while it runs")
    targets = parse_srun(f"srun:{job}").find_targets(_LISTING_S)
    if isinstance(targets, Failed):
        raise UsageError(f"--jobid {job}: {targets.why}; where ssh reaches its nodes, use --cluster ssh --hosts")
    # A step ends in `sh -c SCRIPT`: the same, with another script.
    fronts = {target.label: target.argv[:-1] for target in targets if not hosts or target.label in hosts}
    if unknown := [host for host in hosts if host not in fronts]:
        raise UsageError(f"--hosts {unknown[0]}: is no node of job {job}")
    return Commands(
        {node: lambda script, front=front: (*front, script) for node, front in fronts.items()}, node_timeout_s, python
    )
