"""Decision -> the commands that keep the named nodes out. They are printed for whoever may run them, and never run.

Names of nodes come from evidence, so one that is not plainly a host name makes no command.
"""

import re
from collections.abc import Mapping

from forkpoint.live.diagnosing import Decision

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def commands_for(decision: Decision, environ: Mapping[str, str]) -> tuple[str, ...]:
    """In the words of the scheduler under which we run; none where that is not known."""
    nodes = [node for node in decision.nodes if _HOST.fullmatch(node)]
    if not nodes:
        return ()
    if environ.get("SLURM_JOB_ID"):
        listed = ",".join(nodes)
        return (
            f"sbatch --exclude={listed} ...   # only your next job",
            f'scontrol update nodename={listed} state=drain reason="forkpoint, job {_job(environ)}"   # all jobs',
        )
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return (f"kubectl cordon {' '.join(nodes)}   # no new pods there",)
    return ()


def _job(environ: Mapping[str, str]) -> str:
    return re.sub(r"\W", "", environ["SLURM_JOB_ID"])
