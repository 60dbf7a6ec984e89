"""What ranks send to their controller, whether they issued the same collectives, and a call that failed.

The last part gathers the answers of all ranks to one message, and what happened to those that do not answer.
"""

import os
import re
import select
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

from monarch._rust_bindings.monarch_hyperactor.supervision import SupervisionError
from monarch.actor import Future

from forkpoint.diverge.habits import odd_ranks
from forkpoint.judge.facts.blame import is_victim_text
from forkpoint.model.world import ProcessGroup, name_ranks


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a rank's process."""

    rank: int
    pid: int
    parent: int
    address: tuple[str, int] | None
    """Address of the store through which ranks find each other; only on the rank that hosts it."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many operations a rank has issued in a group."""

    group: ProcessGroup
    seq: int


@dataclass(frozen=True, slots=True)
class Returned:
    rank: int
    call: int
    value: Any
    counts: tuple[GroupCount, ...]
    """The groups' own counters, which are fast to read. gloo counts messages too, so there ranks may rightly differ."""


@dataclass(frozen=True, slots=True)
class Raised:
    rank: int
    call: int
    error: str
    """What Python prints last, on one line, shortened."""
    traceback: str


@dataclass(frozen=True, slots=True)
class IssuedOps:
    """The collectives of a group that a rank's recorder still has."""

    group: ProcessGroup
    count: int
    from_start: bool
    """These are all it ever issued: none has left the ring buffer."""
    digests: tuple[str, ...]
    """Of the last one, two, four, ... collectives and of all. Equal digests mean the same operations, dtypes and sizes (where
    sizes must match) in the same order."""


@dataclass(frozen=True, slots=True)
class RecorderLook:
    """What a rank's recorder shows between two calls."""

    rank: int
    counts: tuple[GroupCount, ...]
    """Only collectives. Groups for which that is unknown are left out."""
    issued: tuple[IssuedOps, ...]


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a rank's process shows while the call is stuck, or after it failed."""

    rank: int
    dump: bytes
    """Its flight recorder's dump; empty if that is off."""
    stacks: str
    """Empty if no call runs."""
    groups: tuple[ProcessGroup, ...]


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended by itself."""

    rank: int
    how: str
    """`exited with code 7`, as Monarch reports it; empty while that is unknown."""
    moment: int
    """The same for deaths that were seen at once: which came first is not known."""


@dataclass(frozen=True, slots=True)
class Split:
    """Members of one group that did not issue the same collectives."""

    group: ProcessGroup
    sides: tuple[tuple[int, ...], ...]
    """Ranks that issued the same, the largest side first."""
    did: tuple[str, ...]
    """What each side issued."""

    @property
    def odd(self) -> tuple[int, ...]:
        """Ranks outside a strict majority; empty without one. All members have answered."""
        return odd_ranks(self.sides, unknown=0)

    def __str__(self) -> str:
        told = (f"{name_ranks(ranks)} {did}" for ranks, did in zip(self.sides, self.did, strict=True))
        return f"in {self.group}: {'; '.join(told)}"


def find_unequal_counts(told: Sequence[Returned] | Sequence[RecorderLook]) -> tuple[Split, ...]:
    return _split((rank.rank, count.group, f"counts {count.seq}") for rank in told for count in rank.counts)


def find_other_ops(looks: Sequence[RecorderLook]) -> tuple[Split, ...]:
    """Groups whose members issued different collectives, as far back as all their recorders reach."""
    held: dict[ProcessGroup, dict[int, IssuedOps]] = {}
    for look in looks:
        for issued in look.issued:
            held.setdefault(issued.group, {})[look.rank] = issued
    return _split(fact for group, by_rank in held.items() for fact in _deeds(group, by_rank))


def _deeds(group: ProcessGroup, held: dict[int, IssuedOps]) -> Iterator[tuple[int, ProcessGroup, str]]:
    if all(issued.from_start for issued in held.values()):
        for rank, issued in held.items():
            yield rank, group, f"issued {issued.count} collectives (digest {issued.digests[-1]})"
        return
    power = min(issued.count for issued in held.values()).bit_length() - 1
    for rank, issued in held.items():
        yield rank, group, f"issued last {1 << power} collectives with digest {issued.digests[power]}"


def _split(told: Iterable[tuple[int, ProcessGroup, str]]) -> tuple[Split, ...]:
    """Only groups of which all members have answered: a missing answer could change the majority."""
    sides: dict[ProcessGroup, dict[str, list[int]]] = {}
    for rank, group, did in told:
        sides.setdefault(group, {}).setdefault(did, []).append(rank)
    unequal = [(g, by_deed) for g, by_deed in sides.items() if len(by_deed) > 1]
    return tuple(_ordered(g, d) for g, d in sorted(unequal) if sum(map(len, d.values())) == len(g.ranks))


def _ordered(group: ProcessGroup, by_deed: dict[str, list[int]]) -> Split:
    ordered = sorted(by_deed.items(), key=lambda item: (-len(item[1]), min(item[1])))
    return Split(group, tuple(tuple(sorted(ranks)) for _, ranks in ordered), tuple(did for did, _ in ordered))


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A call that failed, as the controller saw it."""

    call: int
    method: str
    size: int
    raised: tuple[Raised, ...] = ()
    """In the order in which they were reported."""
    dead: tuple[Death, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks that had not answered when the controller stopped waiting."""
    limit_s: float | None = None
    """The time limit, if that ended the call."""
    still: bool = False
    """No rank issued anything in the second half of that time."""
    splits: tuple[Split, ...] = ()
    """Groups in which ranks that returned did not issue the same."""
    counted: bool = False
    """The splits are in the number of collectives, not only in what they are."""
    testimony: tuple[Testimony, ...] = ()

    @property
    def name(self) -> str:
        return f"call {self.call} ({self.method})"

    def facts(self) -> list[tuple[int | None, str]]:
        """One line each: the rank it is about, and the text."""
        facts: list[tuple[int | None, str]] = [
            (d.rank, f"rank {d.rank} was lost: {d.how or 'its process ended'}") for d in self.dead
        ]
        facts += [(None, f"{name_ranks(ranks)} raised {error}") for error, ranks in self._errors().items()]
        if self.silent:
            facts.append((None, f"{name_ranks(self.silent)} had not returned"))
        facts += [(None, str(split)) for split in self.splits]
        if self.limit_s is not None:
            moved = (
                "no rank issued anything in its second half" if self.still else "ranks were still issuing operations"
            )
            facts.append((None, f"the call did not return within {self.limit_s:g} s, and {moved}"))
        return facts

    @property
    def lost(self) -> Death | None:
        """The process whose end explains the rest: the first to end, if the others only raised the loss of a peer."""
        moment = min((death.moment for death in self.dead), default=0)
        firsts = [death for death in self.dead if death.moment == moment]
        alone = len(firsts) == 1 and all(is_victim_text(raised.error) for raised in self.raised)
        return firsts[0] if alone else None

    def _errors(self) -> dict[str, list[int]]:
        """The ranks that raised each error, in the order in which they were reported."""
        ranks: dict[str, list[int]] = {}
        for raised in self.raised:
            ranks.setdefault(raised.error, []).append(raised.rank)
        return ranks


# ---------------------------------------------------------------------------------------------------------------------
# The ranks' processes as the kernel shows them: which have ended, and in what order. Children of this process only.
#
# Monarch reports a death after some seconds; the kernel at once. (But not how: Monarch collects the exit code.)


class RankProcesses:
    """Uses pidfds: a process that later reuses the pid is neither watched nor killed."""

    def __init__(self, hellos: Iterable[Hello]) -> None:
        own = [hello for hello in hellos if hello.parent == os.getpid()]
        self._handles = {os.pidfd_open(hello.pid): hello.rank for hello in own}
        self._deaths: list[Death] = []
        self._watch = threading.Thread(target=self._watch_all, name="forkpoint-processes", daemon=True)
        self._watch.start()

    @property
    def count(self) -> int:
        return len(self._handles)

    def deaths(self) -> tuple[Death, ...]:
        """Those so far, in order."""
        return tuple(self._deaths)

    def kill(self) -> None:
        """Sends SIGKILL to those that still run: they may be stuck in a collective forever."""
        for handle in self._handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def close(self, limit_s: float) -> None:
        """Waits until all have ended."""
        self._watch.join(limit_s)
        if not self._watch.is_alive():
            for handle in self._handles:
                os.close(handle)
            self._handles.clear()

    def _watch_all(self) -> None:
        """A pidfd becomes readable when its process ends."""
        poll = select.poll()
        for handle in self._handles:
            poll.register(handle, select.POLLIN)
        while len(self._deaths) < len(self._handles):
            ended = [handle for handle, _ in poll.poll()]
            moment = len(self._deaths)
            self._deaths += [Death(self._handles[handle], "", moment) for handle in ended]
            for handle in ended:
                poll.unregister(handle)


# ---------------------------------------------------------------------------------------------------------------------
# The answers of all ranks to one message, or what happened to those that do not answer.

POLL_S = 0.05
"""How late a death may be seen. An answer is seen at once."""
SETTLE_S = 1.0
"""Ranks that fail because of another report it as soon as their connection is reset; the rest wait for the failed rank."""

MAX_REASON = 200
"""Characters: a sentence."""

_COORDINATE = re.compile(r"\{((?:'[^']{1,50}': \d{1,7}/\d{1,7}(?:, )?){1,8})\}")
_PART = re.compile(r": (\d{1,7})/(\d{1,7})")


@dataclass(slots=True)
class CallAnswers:
    sent: list[Future[Any]]
    """In the order of answers, not of ranks. Once Monarch knows that a process has ended, all of them raise that."""
    size: int
    answers: list[Any] = field(default_factory=list[Any])
    """In the order in which they came."""
    dead: list[Death] = field(default_factory=list[Death])

    @property
    def silent(self) -> tuple[int, ...]:
        heard = {answer.rank for answer in self.answers} | {death.rank for death in self.dead}
        return tuple(rank for rank in range(self.size) if rank not in heard)

    @property
    def failed(self) -> bool:
        return bool(self.dead) or any(isinstance(answer, Raised) for answer in self.answers)


def gather(got: CallAnswers, processes: RankProcesses, limit_s: float) -> None:
    """Waits for all ranks; after a failure only a little longer, and never longer than `limit_s`."""
    ends = time.monotonic() + limit_s
    while True:
        known = {death.rank for death in got.dead}
        news = [death for death in processes.deaths() if death.rank not in known]
        got.dead += news
        if not got.silent or not got.sent or time.monotonic() >= ends:
            return
        if (_take(got) and got.failed) or news:
            ends = min(ends, time.monotonic() + SETTLE_S)


def _take(got: CallAnswers) -> bool:
    """The next answer, if one comes soon."""
    try:
        got.answers.append(got.sent[0].get(timeout=POLL_S))
    except TimeoutError:
        return False
    except SupervisionError as error:
        rank = rank_in(str(error))
        if rank is None:
            raise
        if rank not in {death.rank for death in got.dead}:
            got.dead.append(Death(rank, last_line(str(error)), len(got.dead)))
    del got.sent[0]
    return True


def rank_in(words: str) -> int | None:
    """Monarch names a position in the mesh, `{'hosts': 1/2, 'gpus': 3/8}`; ranks are numbered row by row."""
    found = _COORDINATE.search(words)
    if found is None:
        return None
    parts = [(int(at), int(size)) for at, size in _PART.findall(found[1])]
    return sum(at * prod(size for _, size in parts[n + 1 :]) for n, (at, _) in enumerate(parts))


def last_line(words: str) -> str:
    """The reason is on the last line: `the process this actor was running on exited with non-zero code 7`."""
    last = words.strip().splitlines()[-1].strip()
    return last.replace("the process this actor was running on", "its process")[:MAX_REASON]
