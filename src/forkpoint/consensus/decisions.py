"""Decisions that all ranks take alike, and exceptions that all ranks see.

any_rank, all_ranks, same_on_all_ranks, broadcast_decision, agree_on_exception.
"""

import json
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, TypeVar

import torch
import torch.distributed as dist

from forkpoint.consensus.carry import NUMBER_BITS, RANK_BITS, ask, reduce_sum, tell
from forkpoint.consensus.question import TIMEOUT_S, Question, members_of, question
from forkpoint.consensus.refuse import collectives_issued, refuse_collectives
from forkpoint.model.world import name_ranks


def any_rank(
    flag: bool | torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    what: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Whether at least one rank says yes. All ranks get the answer, and every member of the group must call it.

    The bug it ends
        A rank decides alone: it stops early on its own loss, or skips a step on its own NaN. The others go on to the next
        collective and wait for it.

    Wrong
        if not torch.isfinite(loss):
            continue
        loss.backward()

    Right
        if any_rank(not torch.isfinite(loss), what="NaN step"):
            continue
        loss.backward()
    """
    asked = question("any_rank", what, group, timeout_s)
    return ask(asked, int(bool(flag))) > 0


def all_ranks(
    flag: bool | torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    what: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Whether every rank says yes. All ranks get the answer, and every member of the group must call it.

    The bug it ends
        A rank goes on to something collective because *it* is ready: its save has finished, its metric is a new best, its
        cache is warm. Another is not, and never comes.

    Wrong
        if save.done():
            dist.barrier()
            publish()

    Right
        if all_ranks(save.done(), what="save done"):
            publish()
    """
    asked = question("all_ranks", what, group, timeout_s)
    return ask(asked, int(not flag)) == 0


Value = TypeVar("Value")


def same_on_all_ranks(
    value: Value, what: str, group: dist.ProcessGroup | None = None, *, timeout_s: float = TIMEOUT_S
) -> Value:
    """A value that must be equal everywhere: the value, or `RanksDisagree` on every member.

    Compared as JSON: None, bool, int, float, str, list, tuple, dict of these. The order of a dict's keys does not
    count; give `list(d)` where it does.

    The bug it ends
        The number of micro-batches, a padded length, the keys of a dict, a setting: each rank works it out alone, and one
        comes to another result. The collectives built on it differ in number, order or size, and hang much later.

    Wrong
        for key in metrics:
            dist.all_reduce(metrics[key])

    Right
        for key in same_on_all_ranks(sorted(metrics), "metric keys"):
            dist.all_reduce(metrics[key])
    """
    asked = question("same_on_all_ranks", what, group, timeout_s)
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:  # on one rank, perhaps: the others must not wait for it
        ask(asked, failure=error)
        raise
    ask(asked, value=text)
    return value


Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_BYTES = 1 << 20
"""A decision, not data: tensors have `dist.broadcast`."""
_SHORT_BYTES = 5
_LONG = 1 << (NUMBER_BITS - 1)
"""Set if the number is not the text itself but its length."""


def broadcast_decision(
    fn: Callable[[], object],
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    *,
    what: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Json:
    """What `fn` returned on the global rank `src`, as JSON carries it: a tuple comes back as a list, on `src` too.

    Only `src` runs it, so a collective inside is refused. If it raises, every member raises `PeerFailed`.

    The bug it ends
        Rank 0 looks at a clock, a file, a queue or a signal, and acts on it. The others look at theirs, or at nothing. Or
        rank 0 raises where it looks, and the others wait in the broadcast that should have brought the result.

    Wrong
        if time.time() - saved_at > 600:
            save_sharded(model)

    Right
        if broadcast_decision(lambda: time.time() - saved_at > 600, what="time to save"):
            save_sharded(model)
    """
    asked = question(f"broadcast_decision from rank {src}", what, group, timeout_s)
    members = asked.members
    if src not in members.ranks:
        raise ValueError(f"src={src} is not in this group of {name_ranks(members.ranks)}: give the global rank of one")
    if members.rank != src:
        return json.loads(_hear(asked, ask(asked), b""))
    try:
        with refuse_collectives(f"the function given to {asked}", members):
            text = _encode(fn())
    except (Exception, SystemExit) as error:  # whatever it is, the others wait for an answer
        ask(asked, failure=error)
        raise
    short = len(text) <= _SHORT_BYTES
    return json.loads(_hear(asked, ask(asked, int.from_bytes(text) if short else _LONG | len(text)), text))


def _encode(result: object) -> bytes:
    text = json.dumps(result).encode()
    if len(text) > MAX_BYTES:
        raise ValueError(f"a decision of {len(text)} bytes; at most {MAX_BYTES} can be sent")
    return text


def _hear(asked: Question, number: int, own: bytes) -> bytes:
    """`true` fits into the number. A longer text takes a second collective, whose length all members know by now."""
    if number < _LONG:
        return number.to_bytes(_SHORT_BYTES).lstrip(b"\0")
    length = number - _LONG
    words = -(-length // 7)  # seven bytes each: never negative, and zero from all other ranks
    padded = own.ljust(7 * words, b"\0")
    heard = reduce_sum(asked, [int.from_bytes(padded[i : i + 7]) for i in range(0, 7 * words, 7)])
    return b"".join(word.to_bytes(7) for word in heard)[:length]


@contextmanager
def agree_on_exception(
    what: str | None = None, group: dist.ProcessGroup | None = None, *, timeout_s: float = TIMEOUT_S
) -> Generator[None]:
    """The rank that raised raises its own exception, the others `PeerFailed`, which names it.

    Ctrl-C is not passed on: launchers send it to every rank.

    The bug it ends
        A file is missing, a record is bad, memory runs out: on one rank. It raises, or it catches and goes on, and the
        others wait in the next collective until the watchdog ends them.

    Wrong
        batch = next(batches)
        train_step(batch)

    Right
        with agree_on_exception("next batch"):
            batch = next(batches)
        train_step(batch)

    The others learn of it at the end of the block. A collective inside the block is not covered: a rank that raises before it
    leaves the others waiting *there*. A warning is given if one ran inside. Agreements of this package are covered.
    """
    members_of(group)  # a rank that is not a member learns it before the block, not after
    before = collectives_issued()
    try:
        yield
    except (Exception, SystemExit) as error:
        tell(question("agree_on_exception", what, group, timeout_s), error)
        raise
    inside = collectives_issued() - before
    if inside > 0:
        warnings.warn(
            f"agree_on_exception: collectives ran inside its block ({inside}). A rank that raises before one of them leaves "
            "the others waiting there; move them after the block",
            stacklevel=3,
        )
    ask(question("agree_on_exception", what, group, timeout_s))


Batch = TypeVar("Batch")


_EMPTY = 1 << RANK_BITS
"""Ranks without any batch are counted in the bits above those that count ranks that have run out."""


class Joined(Iterator[Batch], Generic[Batch]):
    """One pass over the loader, in step with the other members."""

    def __init__(
        self, loader: Iterable[Batch], group: dist.ProcessGroup | None, pad: Literal["last"] | None, timeout_s: float
    ) -> None:
        members_of(group)
        self.is_repeat = False
        """The last batch is a repetition: this rank has run out and waits for the others."""
        self._loader, self._group, self._pad, self._timeout_s = loader, group, pad, timeout_s
        self._batches: Iterator[Batch] | None = None
        self._last: list[Batch] = []
        self._ended = False

    def __next__(self) -> Batch:
        if self._ended:
            raise StopIteration
        has_batch = self._fetch()
        told = 0 if has_batch else 1 if self._last else 1 + _EMPTY
        empty, ended = divmod(ask(self._question(), told), _EMPTY)
        if ended and (self._pad is None or ended == members_of(self._group).size):
            self._ended = True
            raise StopIteration
        if empty:
            self._refuse()
        self.is_repeat = not has_batch
        return self._last[0]

    def _fetch(self) -> bool:
        try:
            if self._batches is None:
                self._batches = iter(self._loader)
            self._last = [next(self._batches)]
        except StopIteration:
            return False
        except (Exception, SystemExit) as error:
            self._ended = True
            tell(self._question(), error)
            raise
        return True

    def _refuse(self) -> None:
        """Some ranks have batches, some never had one. All know that by now; the failure says which ranks."""
        self._ended = True
        none = None if self._last else ValueError("no batch at all, so there is none to repeat")
        ask(self._question(), failure=none)

    def _question(self) -> Question:
        kind = f"join_uneven, pad={self._pad!r}" if self._pad else "join_uneven"
        return question(kind, "next batch", self._group, self._timeout_s)


def join_uneven(
    loader: Iterable[Batch],
    group: dist.ProcessGroup | None = None,
    *,
    pad: Literal["last"] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Joined[Batch]:
    """The batches that all ranks have. Every member must take it to its end: one that breaks out of the loop alone leaves the others waiting.

    The bug it ends
        Packing, filtering, sharding by file: one rank has 14 batches, another 15. The one with 15 waits in the gradients
        of a step that nobody else takes.

    Wrong
        for batch in loader:
            train_step(batch)

    Right
        for batch in join_uneven(loader):
            train_step(batch)

    By default all stop with the first that runs out, and what the others have left is not seen. With `pad="last"` a rank
    that has run out gets its last batch again until all are done: nothing is lost, and `is_repeat` says which batches not to
    count.
    """
    return Joined(loader, group, pad, timeout_s)
