"""`srun:JOBID[:PATH]`: on each node of a running Slurm job, as a step beside it that takes none of its resources."""

import re

from forkpoint.collect.call import CallFailed, answer_of
from forkpoint.collect.script import SCRIPT
from forkpoint.collect.transports import Remote, Target, checked_path
from forkpoint.errors import UsageError

_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?")
_NODE = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
_LIST = re.compile(r"[A-Za-z0-9_][\w.,\[\]-]{0,60000}", re.ASCII)


def parse_srun(place: str) -> Remote:
    """Raises UsageError."""
    job, _, path = place.removeprefix("srun:").partition(":")
    if not _JOB.fullmatch(job):
        raise UsageError(f"{place}: must be srun:JOBID or srun:JOBID:PATH")
    return Remote(place, checked_path(place, path), lambda limit_s: _nodes(job, limit_s))


def _nodes(job: str, limit_s: float) -> tuple[Target, ...] | CallFailed:
    listed = answer_of(("squeue", "--noheader", f"--jobs={job}", "--format=%N"), limit_s)
    if isinstance(listed, CallFailed):
        return listed
    if not _LIST.fullmatch(listed.strip()):
        return CallFailed(f"job {job} has no nodes: has it ended? Name its folder instead")
    named = answer_of(("scontrol", "show", "hostnames", listed.strip()), limit_s)
    if isinstance(named, CallFailed):
        return named
    return tuple(Target(node, _argv(job, node)) for node in named.split() if _NODE.fullmatch(node))


def _argv(job: str, node: str) -> tuple[str, ...]:
    step = ("--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--quiet")
    return ("srun", *step, "sh", "-c", SCRIPT)
