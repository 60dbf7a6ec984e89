"""Batches as long as all ranks have some: loops that end together."""

from collections.abc import Iterable, Iterator
from typing import Generic, Literal, TypeVar

import torch.distributed as dist

from forkpoint.consensus.ask import RANK_BITS, ask, tell
from forkpoint.consensus.question import TIMEOUT_S, Question, members_of, question

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
    """Every member must take it to its end: one that breaks out of the loop alone leaves the others waiting.

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
