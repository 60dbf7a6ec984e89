"""Where ranks tell each other what they measured: the store that also brought them together.

Not through the collectives: they are what is being doubted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.distributed_c10d import Store

_POLL_S = 0.05
_PREFIX = "forkpoint/collectives"


@dataclass(frozen=True, slots=True)
class Board:
    store: Store
    rank: int
    world: int

    def post(self, what: str, text: str) -> None:
        self.store.set(f"{_PREFIX}/{what}/{self.rank}", text)

    def read(self, what: str, rank: int) -> str | None:
        """None: it has not told. Never waits, so that another thread may ask at the same time."""
        key = f"{_PREFIX}/{what}/{rank}"
        return self.store.get(key).decode() if self.store.check([key]) else None

    def wait(self, what: str, ranks: Sequence[int], seconds: float) -> dict[int, str]:
        """What these ranks told, as soon as all have, or what is there when the time is over."""
        deadline = time.monotonic() + seconds
        missing, told = list(ranks), dict[int, str]()
        while missing:
            found = {rank: text for rank in missing if (text := self.read(what, rank)) is not None}
            told |= found
            missing = [rank for rank in missing if rank not in found]
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return told
