"""What ssh and Slurm print, as OpenSSH 9.2 and Slurm 22.05 printed it, and what is told of it."""

import resource
from io import BytesIO
from pathlib import Path

from forkpoint.gather.folder import CollectLimits, Copied, EvidenceFolder, Meter, Original
from forkpoint.gather.tools import CallFailed, answer_of, tell_failure
from looping import for_each


@for_each(
    ("tool", "code", "printed", "told"),
    [
        ("ssh", 255, "root@127.0.0.1: Permission denied (publickey).", "ssh-copy-id node1"),
        ("ssh", 255, "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "Ask its administrator"),
        ("ssh", 255, "Host key verification failed.", "compare the fingerprint"),
        ("ssh", 255, "ssh: connect to host node1 port 22: Connection refused", "no ssh server answers"),
        ("ssh", 255, "Connection timed out during banner exchange", "node1 does not answer"),
        ("ssh", 255, "ssh: Could not resolve hostname node1: Name or service not known", "cannot be resolved"),
        ("srun", 233, "srun: error: Task launch failed on node node1: Communication connection failure", "cannot reach node1"),
        ("srun", 141, "srun: error: failed: Zero Bytes were transmitted or received", "its clock differ"),
        ("squeue", 1, "slurm_load_jobs error: Invalid job id specified", "does not know this job"),
        ("squeue", 1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "scontrol ping"),
    ],
)  # fmt: skip
def test_the_reason_and_the_next_step_are_told_with_the_tools_own_words(
    tool: str, code: int, printed: str, told: str
) -> None:
    failed = CallFailed(f"{tool}: exit code {code} ({printed})", tuple(printed.splitlines()))

    said = tell_failure("node1", failed, "--seconds")

    assert told in said
    assert said.endswith(f"({failed.why})")


@for_each(
    ("tool", "code", "printed"),
    [
        ("ssh", 1, "OSError: Connection refused"),
        ("ssh", 3, "forkpoint: /dumps: no such file or directory"),
        ("srun", 1, "ValueError: authentication of Socket timed out"),
    ],
)
def test_words_of_a_program_on_the_other_machine_are_not_taken_for_the_tools(
    tool: str, code: int, printed: str
) -> None:
    failed = CallFailed(f"{tool}: exit code {code} ({printed})", (printed,))

    assert tell_failure("node1", failed, "--seconds") == failed.why


def test_of_a_long_complaint_the_end_is_kept() -> None:
    said = answer_of(("sh", "-c", "seq 1 5000 >&2; echo the reason >&2; exit 4"), 60.0)

    assert isinstance(said, CallFailed)
    assert said.said[-1] == "the reason"
    assert said.why.startswith("sh: exit code 4 (…")
    assert said.why.endswith(" 5000 the reason)")


def test_a_file_that_cannot_be_written_is_not_blamed_on_its_source_and_leaves_room_for_others(tmp_path: Path) -> None:
    folder = EvidenceFolder(str(tmp_path / "out"), Meter(CollectLimits()))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        large = folder.keep(Original("ssh:a:/x", "a", "/large.log", None, None), BytesIO(b"line\n" * 1000))
        small = folder.keep(Original("ssh:a:/x", "a", "/small.log", None, None), BytesIO(b"line\n"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert isinstance(large, str)
    assert large.startswith("cannot be written here (File too large): choose a folder with more space")
    assert isinstance(small, Copied)
    assert [path.name for path in folder.root.rglob("*.log")] == ["small.log"]
