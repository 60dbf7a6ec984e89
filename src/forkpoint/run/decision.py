"""What a scheduler is told to do: the exit codes of `forkpoint run`. `decide` chooses among them."""

from dataclasses import dataclass

DO_NOT_RETRY = 93
"""As NVIDIA's ft_launcher and our guard have it."""
RETRY = 75
"""EX_TEMPFAIL."""
RETRY_ELSEWHERE = 76


@dataclass(frozen=True, slots=True)
class Decision:
    code: int
    """The exit code of `forkpoint run`."""
    why: str
    nodes: tuple[str, ...] = ()
    """To be left out of the next attempt."""
