"""NCCL's RAS: one question to any process of the job, one report on all communicators. Evidence, never a verdict."""

from forkpoint.evidence.machine.ras import looks_like_ras
from forkpoint.live.watch.sources import Gathered, Spool
from forkpoint.live.watch.sources.ask import NoAnswer, SourceAddress, ask

_QUESTION = b"verbose status\n"
_MAX_BYTES = 16 << 20
"""The same limit as for one text file."""
_LIMIT_S = 15.0
"""RAS itself waits 5 s for processes that do not answer, and asks again."""


class Ras:
    name = "ras"

    def __init__(self, address: SourceAddress) -> None:
        self._address = address

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        """Only when nothing moves: counts of a running job differ from one moment to the next and say nothing."""
        if not stacks:
            return Gathered()
        answer = ask(self._address, _QUESTION, _MAX_BYTES, _LIMIT_S)
        if isinstance(answer, bytes) and looks_like_ras(answer.decode("utf-8", "replace")):
            return Gathered(stacks=(spool.put("ras.txt", answer),))
        why = answer.why if isinstance(answer, NoAnswer) else "its answer is not a RAS report"
        return Gathered(notes=(f"{self._address}: {why}",))
