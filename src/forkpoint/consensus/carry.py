"""One question, one small all-reduce with a time limit, one answer: or an error that says which ranks did not come."""

import hashlib
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from forkpoint.consensus.question import (
    ConsensusError,
    MemberAnswer,
    NoAgreement,
    PeerFailed,
    Question,
    count,
    disagreement,
    gather_options,
    is_settled,
    outside_graphs,
    settle,
    sum_options,
)
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Which ranks did not come: found through the group's store, and only if a rank waits. An agreement in time costs no request.
#
# A rank that has waited for a second writes the question's number to the store. The first rank that gives up reads who
# has done so, and stores the result for the others: ten thousand ranks must not ask about ten thousand ranks each.

ANNOUNCE_AFTER_S = 1.0
"""Far longer than an agreement takes where everybody comes, and short beside any time-out."""
_SETTLE_S = 2 * ANNOUNCE_AFTER_S
"""A rank that came just before another gave up needs this long to announce itself. Only then are the rest absent."""
_PATIENCE_S = 10.0
"""The store may have died with its host. An error must not wait for it forever."""
_KEY = "forkpoint/consensus"


@dataclass(frozen=True, slots=True)
class Absence:
    by: int
    """The rank that gave up first and looked."""
    waited: float
    absent: tuple[int, ...]


def announce(question: Question) -> None:
    with suppress(RuntimeError):  # without the store only the names of absent ranks are lost
        _store(question).set(f"{_KEY}/rank/{question.members.rank}", str(question.number))


def find_absence(question: Question, waited: float) -> Absence | None:
    """None where the store does not answer."""
    found: list[Absence] = []
    # In a thread: if the store's host is frozen, a read never returns.
    reader = threading.Thread(target=_look, args=(question, waited, found), daemon=True)
    reader.start()
    reader.join(_PATIENCE_S)
    return found[0] if found else None


def _look(question: Question, waited: float, found: list[Absence]) -> None:
    report = f"{_KEY}/question/{question.number}"
    with suppress(RuntimeError):
        announce(question)
        store = _store(question)
        if store.add(f"{report}/readers", 1) == 1:
            absence = Absence(question.members.rank, waited, _absent(question, store))
            store.set(report, msgspec.json.encode(absence).decode())
        else:
            store.wait([report], timedelta(seconds=_PATIENCE_S))
            absence = msgspec.json.decode(store.get(report), type=Absence)
        found.append(absence)


def _absent(question: Question, store: Store) -> tuple[int, ...]:
    absent = question.members.ranks
    until = time.monotonic() + _SETTLE_S
    while True:
        absent = tuple(rank for rank in absent if not _came(rank, question, store))
        if not absent or time.monotonic() > until:
            return absent
        time.sleep(0.1)


def _came(rank: int, question: Question, store: Store) -> bool:
    key = f"{_KEY}/rank/{rank}"
    return store.check([key]) and int(store.get(key)) >= question.number


def _store(question: Question) -> Store:
    assert question.members.group is not None
    return question.members.group.get_group_store()


_SLICE_S = 1.0
"""How often the wait returns from C++: for Ctrl-C, and to announce this rank."""


def reduce_sum(question: Question, words: list[int]) -> list[int]:
    """Elementwise sum over the members."""
    group = question.members.group
    if group is None or group.size() == 1:
        return words
    # Integers carry no gradient. The copy is asynchronous: what the GPU is still doing counts against the time-out.
    device = question.members.device
    tensor = torch.tensor(words, dtype=torch.int64, device="cpu").to(device, non_blocking=True)
    work = group.allreduce([tensor], sum_options(_longer_than(question)))
    return _result(question, work, tensor)


def gather(question: Question, record: bytes) -> list[bytes]:
    """The records of all members, in the group's order. All of one length."""
    group = question.members.group
    if group is None or group.size() == 1:
        return [record]
    device = question.members.device
    tensor = torch.tensor(list(record), dtype=torch.uint8, device="cpu").to(device, non_blocking=True)
    gathered = torch.empty((group.size(), len(record)), dtype=torch.uint8, device=device)
    work = group.allgather([list(gathered)], [tensor], gather_options(_longer_than(question)))
    return [bytes(row) for row in _result(question, work, gathered)]


def _longer_than(question: Question) -> timedelta:
    """Gloo gives up soon after we do, so that nothing is in flight when the process ends."""
    return timedelta(seconds=question.timeout_s + _SLICE_S)


def _result(question: Question, work: dist.Work, tensor: torch.Tensor) -> list[Any]:
    assert question.members.group is not None
    count(question.members.group)  # issued, not refused
    began = time.monotonic()
    try:
        finished = _finish(question, work, tensor.device)
    except RuntimeError as broken:
        raise _no_agreement(question, time.monotonic() - began) from broken
    if not finished:
        raise _no_agreement(question, question.timeout_s)
    return tensor.tolist()


def _finish(question: Question, work: dist.Work, device: torch.device) -> bool:
    """Whether it finished in time. After a while this rank announces itself in the store."""
    began = time.monotonic()
    announce_at = min(ANNOUNCE_AFTER_S, question.timeout_s / 2)
    wait = _wait_on_host if device.type == "cpu" else _wait_on_device
    if wait(work, announce_at):
        return True
    announce(question)
    while (left := question.timeout_s - (time.monotonic() - began)) > 0:
        if wait(work, min(left, _SLICE_S)):
            return True
    return False


def _wait_on_host(work: dist.Work, seconds: float) -> bool:
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # it has ended meanwhile: successfully, or with its own error
    return True


def _wait_on_device(work: dist.Work, seconds: float) -> bool:
    """Polls: NCCL's own wait with a time-out would mark the communicator as failed."""
    until = time.monotonic() + seconds
    pause = 0.0
    while not work.is_completed():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(pause + 1e-5, 1e-3)
    work.wait()
    return True


def _no_agreement(question: Question, waited: float) -> NoAgreement:
    absence = find_absence(question, waited)
    message = f"no agreement on {question}: {_who(question, waited, absence)}"
    error = NoAgreement(message, None if absence is None else absence.absent)
    settle(error, question.members.ranks)
    return error


def _who(question: Question, waited: float, absence: Absence | None) -> str:
    timed_out = waited >= question.timeout_s
    ended = f"within {waited:.3g} s" if timed_out else f"before it broke after {waited:.3g} s"
    if absence is None:
        return f"not all ranks came {ended}; which ones is not known, because the group's store does not answer"
    if question.members.rank in absence.absent:
        return f"this rank came after rank {absence.by} had waited {absence.waited:.3g} s and given up"
    if not absence.absent:
        return f"every rank came, but the collective did not finish {ended}"
    return f"{name_ranks(absence.absent)} did not come {ended}{' (or came and froze)' if timed_out else ''}"


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
