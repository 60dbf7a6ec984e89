"""Why a machine cannot be reached: translates the errors of ssh, srun and squeue into a reason and the next step.

Their own output follows in brackets. It may contain what an untrusted server sent, so no part of it becomes a command that
people are told to run.
"""

from dataclasses import dataclass

from forkpoint.gather.tools import CallFailed


@dataclass(frozen=True, slots=True)
class _Reason:
    signs: tuple[str, ...]
    """The tool printed one of these."""
    text: str


BY_SSH = "ask its nodes by ssh (collect ssh:NODE:PATH, diagnose --cluster ssh --hosts A,B, attach --hosts A,B)"
_AGAIN = "its evidence stays on its disk: ask again once it is back"

_SSH = (
    _Reason(
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "its ssh host key has changed: {host} was reinstalled, or another machine answers under its"
        " name. Ask its administrator; then `ssh {host}` shows how to remove the old key",
    ),
    _Reason(
        ("Host key verification failed",),
        "its ssh host key is not known here: `ssh {host}` once, and compare the fingerprint before you accept it",
    ),
    _Reason(
        ("Permission denied (", "Too many authentication failures"),
        "it refuses your key: `ssh {host}` must work without a password (ssh-copy-id {host}, or ssh-add where an agent holds"
        " the key)",
    ),
    _Reason(
        ("Could not resolve hostname", "Name or service not known"),
        "this host name cannot be resolved: give a name with which `ssh {host}` works",
    ),
    _Reason(
        ("Connection refused",),
        "no ssh server answers there: is {host} up, and does it listen on this port? " + _AGAIN,
    ),
    _Reason(
        ("timed out", "No route to host", "Network is unreachable", "Host is down"),
        "{host} does not answer: it is down, frozen or disconnected; " + _AGAIN,
    ),
    _Reason(
        ("Connection closed", "Connection reset", "kex_exchange_identification", "Broken pipe"),
        "{host} closed the connection: its ssh server is overloaded or was stopped; ask again",
    ),
)

_SLURM = (
    _Reason(
        ("Unable to contact slurm controller",),
        "slurmctld does not answer (`scontrol ping`): wait for it, or " + BY_SSH,
    ),
    _Reason(
        ("Invalid job id", "Job has expired"),
        "Slurm does not know this job (any more): name the folder that it wrote to, or " + BY_SSH,
    ),
    _Reason(
        ("already completing or completed", "Unable to confirm allocation"),
        "the job ended meanwhile: name the folder that it wrote to, or " + BY_SSH,
    ),
    _Reason(
        ("Access/permission denied", "Invalid user id"),
        "the job belongs to another user: ask as that user or as root",
    ),
    _Reason(
        ("munge", "authentication", "Invalid job credential"),
        "Slurm does not accept the credentials: does munged run on both sides, with one key and with clocks that differ by"
        " less than five minutes?",
    ),
    _Reason(
        ("Zero Bytes were transmitted",),
        "slurmd on {host} closed the connection without an answer: usually it does not accept the credentials. Does munged run"
        " there, and does its clock differ by less than five minutes? Its log says which (`scontrol show config`: SlurmdLogFile)",
    ),
    _Reason(
        (
            "Communication connection failure",
            "Node failure on",
            "Socket timed out",
            "Unable to contact",
            "not responding",
        ),
        "Slurm cannot reach {host}: it is down, frozen or disconnected (`scontrol show node {host}`); " + _AGAIN,
    ),
    _Reason(
        ("not in this job's allocation", "Requested node configuration is not available", "node list"),
        "{host} is no longer a node of this job: " + BY_SSH,
    ),
)

_BY_TOOL = {"ssh": _SSH, "srun": _SLURM, "squeue": _SLURM, "scontrol": _SLURM}
_BY_SSH_ITSELF = "exit code 255"
_BY_SLURM_ITSELF = ("srun: ", "squeue: ", "scontrol: ", "slurm_")


def tell_failure(host: str, failed: CallFailed, longer: str) -> str:
    """The reason and the next step; if the error is unknown, only the tool's own output. `longer`: the option that allows
    more time.
    """
    tool, reasons = failed.why.partition(":")[0], _BY_TOOL.get(failed.why.partition(":")[0], ())
    if reasons and "cannot be run" in failed.why:
        return f"{failed.why}: {tool} is not installed here; run forkpoint on a machine that has it"
    if "not done after" in failed.why:
        return f"{host} is down or slow; ask again with a longer {longer} ({failed.why})"
    words = _own_words(tool, failed)
    found = next((reason for reason in reasons if any(sign in line for sign in reason.signs for line in words)), None)
    return f"{found.text.format(host=host)} ({failed.why})" if found else failed.why


def _own_words(tool: str, failed: CallFailed) -> list[str]:
    """Without the output of the script on the other machine, which both tools pass on with its exit code."""
    if tool == "ssh":
        return list(failed.said) if _BY_SSH_ITSELF in failed.why else []
    return [line for line in failed.said if line.startswith(_BY_SLURM_ITSELF)]
