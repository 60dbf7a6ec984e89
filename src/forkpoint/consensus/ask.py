"""One question, one small all-reduce, one answer; and passing an error of one rank to the others."""

import hashlib
import struct

from forkpoint.consensus.carry import gather, reduce_sum
from forkpoint.consensus.errors import (
    ConsensusError,
    MemberAnswer,
    NoAgreement,
    PeerFailed,
    disagreement,
    is_settled,
    settle,
)
from forkpoint.consensus.question import Question
from forkpoint.consensus.torch_inside import outside_graphs
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# One question, one small all-reduce, one answer.
#
# Every question sums the same two numbers, whoever asks. So two ranks that ask different things still meet in one
# collective, notice it and report it, instead of one taking the other's answer for its own. Two numbers, because gloo
# sends a message per part of a tensor: with more, an agreement takes twice as long.

RANK_BITS = 21
"""Bits of a count of ranks: up to two million. Sums of that many numbers stay below 2**63."""
NUMBER_BITS = 63 - RANK_BITS
_RECORD = "<?qq320s800s"
_WHAT_CHARS, _VALUE_CHARS = 80, 200  # of four bytes at most


@outside_graphs
def ask(question: Question, number: int = 0, *, value: str = "", failure: BaseException | None = None) -> int:
    """The sum of all members' numbers (which must stay below 2**42).

    Raises on every member if one has failed, if they do not ask the same, or if their values differ.
    """
    if failure is not None and is_settled(failure, question.members.ranks):
        raise failure
    own = _digest(f"{question.label} {value}")
    digests, told = reduce_sum(question, [own, (failure is not None) << NUMBER_BITS | number])
    failed, total = divmod(told, 1 << NUMBER_BITS)
    if failed or digests != own * question.members.size:
        raise _trouble(question, _gather_answers(question, value, failure)) from failure
    return total


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> (64 - NUMBER_BITS)


def _gather_answers(question: Question, value: str, failure: BaseException | None) -> list[MemberAnswer]:
    """What every member asked and answered. A second collective, only after a failure or disagreement, which all see."""
    asked = question.label
    said = value if failure is None else f"{type(failure).__name__}: {failure}"
    texts = (_cut(asked, _WHAT_CHARS).encode(), _cut(said, _VALUE_CHARS).encode())
    records = gather(question, struct.pack(_RECORD, failure is not None, _digest(asked), _digest(said), *texts))
    return [
        _answer(rank, *struct.unpack(_RECORD, record))
        for rank, record in zip(question.members.ranks, records, strict=True)
    ]


def _answer(rank: int, failed: bool, question: int, value: int, *texts: bytes) -> MemberAnswer:
    asked, said = (text.rstrip(b"\0").decode("utf-8", "replace") for text in texts)
    return MemberAnswer(rank, failed, question, asked, value, said)


def _trouble(question: Question, answers: list[MemberAnswer]) -> ConsensusError:
    failed = [answer for answer in answers if answer.failed]
    if failed:
        ranks = tuple(answer.rank for answer in failed)
        others = f" ({name_ranks(ranks[1:])} as well)" if ranks[1:] else ""
        error = PeerFailed(f"rank {ranks[0]} failed in {failed[0].asked}: {failed[0].said}{others}", ranks)
    elif len({answer.question for answer in answers}) > 1:
        error = disagreement("which agreement comes next", [(a.rank, a.question, a.asked) for a in answers])
    else:
        error = disagreement(repr(question.what), [(a.rank, a.value, a.said) for a in answers])
    settle(error, question.members.ranks)
    return error


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


# ---------------------------------------------------------------------------------------------------------------------
# Tells the other ranks about an error of this rank.


def tell(question: Question, error: BaseException) -> None:
    """Returns when the others know or cannot be reached; the caller then re-raises its own error, which says more."""
    ranks = question.members.ranks
    if is_settled(error, ranks):
        return
    try:
        ask(question, failure=error)
    except PeerFailed:
        pass  # our own error, as the others see it
    except NoAgreement as silence:
        error.add_note(f"forkpoint: the other ranks could not be informed: {silence}")
    settle(error, ranks)
