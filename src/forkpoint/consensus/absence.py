"""Who did not come: through the group's store, and only where somebody waits. An agreement in time costs no request.

A rank that has waited for a second leaves its number in the store. The first that gives up reads who has, and stores it
for the others: ten thousand ranks must not ask about ten thousand ranks each.
"""

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch.distributed.distributed_c10d import Store

from forkpoint.consensus.question import Question

ANNOUNCE_AFTER_S = 1.0
"""Far longer than an agreement takes where everybody comes, and short beside any time-out."""
_SETTLE_S = 2 * ANNOUNCE_AFTER_S
"""Who came just before somebody gave up needs this long to be known. Only then is the rest absent."""
_PATIENCE_S = 10.0
"""The store may have died with its host. An error must not wait for it for ever."""
_KEY = "forkpoint/consensus"


@dataclass(frozen=True, slots=True)
class Absence:
    by: int
    """The rank that gave up first and looked."""
    waited: float
    absent: tuple[int, ...]


def announce(question: Question) -> None:
    with suppress(RuntimeError):  # a store that does not answer costs the names, not the agreement
        _store(question).set(f"{_KEY}/rank/{question.members.rank}", str(question.number))


def find_absence(question: Question, waited: float) -> Absence | None:
    """None where the store does not answer."""
    found: list[Absence] = []
    # A thread, because a store whose host is stopped keeps its caller in a read without end.
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
            store.set(report, json.dumps(asdict(absence)))
        else:
            store.wait([report], timedelta(seconds=_PATIENCE_S))
            told = json.loads(store.get(report))
            absence = Absence(told["by"], told["waited"], tuple(told["absent"]))
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
