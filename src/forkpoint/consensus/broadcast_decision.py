"""One rank decides, all ranks hear it; if it cannot decide, all ranks hear that."""

import json
from collections.abc import Callable

import torch.distributed as dist

from forkpoint.consensus.ask import NUMBER_BITS, ask
from forkpoint.consensus.carry import reduce_sum
from forkpoint.consensus.question import TIMEOUT_S, Question, question
from forkpoint.consensus.refuse import refuse_collectives
from forkpoint.model.ranks import name_ranks

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_BYTES = 1 << 20
"""A decision, not data: tensors have `dist.broadcast`."""
_SHORT_BYTES = 5
_LONG = 1 << (NUMBER_BITS - 1)
"""Set where the number is not the text itself but its length."""


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
        raise ValueError(f"a decision of {len(text)} bytes; at most {MAX_BYTES} can be told")
    return text


def _hear(asked: Question, number: int, own: bytes) -> bytes:
    """`true` fits into the number. A longer text takes a second collective, of a length that all members know by now."""
    if number < _LONG:
        return number.to_bytes(_SHORT_BYTES).lstrip(b"\0")
    length = number - _LONG
    words = -(-length // 7)  # seven bytes each: never negative, so that silence is zero
    padded = own.ljust(7 * words, b"\0")
    heard = reduce_sum(asked, [int.from_bytes(padded[i : i + 7]) for i in range(0, 7 * words, 7)])
    return b"".join(word.to_bytes(7) for word in heard)[:length]
