"""`kubectl:NAMESPACE/SELECTOR[:PATH]`: in each pod that the selector finds, and the log that the cluster keeps of it.

A container needs sh, find, grep and tar for its files; its log needs nothing.
"""

import re

from forkpoint.collect.call import CallFailed, answer_of
from forkpoint.collect.script import SCRIPT
from forkpoint.collect.transports import Remote, Target, checked_path
from forkpoint.errors import UsageError

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SELECTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./=!,() -]{0,1000}")
_POD = re.compile(r"pod/([a-z0-9][a-z0-9.-]{0,252})")


def parse_kubectl(place: str) -> Remote:
    """Raises UsageError."""
    namespace, _, rest = place.removeprefix("kubectl:").partition("/")
    selector, _, path = rest.partition(":")
    if not _NAMESPACE.fullmatch(namespace) or not _SELECTOR.fullmatch(selector):
        raise UsageError(f"{place}: must be kubectl:NAMESPACE/SELECTOR, as in kubectl:train/job-name=llama")
    return Remote(place, checked_path(place, path), lambda limit_s: _pods(namespace, selector, limit_s))


def _pods(namespace: str, selector: str, limit_s: float) -> tuple[Target, ...] | CallFailed:
    front = ("kubectl", f"--namespace={namespace}")
    listed = answer_of((*front, "get", "pods", f"--selector={selector}", "--output=name"), limit_s)
    if isinstance(listed, CallFailed):
        return listed
    pods = [match[1] for line in listed.split() if (match := _POD.fullmatch(line))]
    if not pods:
        return CallFailed(f"no pod in {namespace} is selected by {selector}")
    return tuple(
        Target(
            pod, (*front, "exec", "--stdin", pod, "--", "sh", "-c", SCRIPT), (*front, "logs", "--all-containers", pod)
        )
        for pod in pods
    )
