"""The one plain sentence that comes first everywhere: who did what where, and why, in at most 160 characters.

Whoever knows the facts writes it several times, the richest first; the first that fits is taken. Nothing is cut: what does
not fit is left out whole.
"""

import re
from collections.abc import Collection, Iterable

from forkpoint.model.frames import short_name, user_frames
from forkpoint.model.op import Stack
from forkpoint.model.world import format_ranks

MAX_HEADLINE = 160

_MAX_RANGES = 4
_MAX_QUOTE = 60
_NAME = re.compile(r"[\w.+-]{1,40}")
"""A file or an operation that a sentence can hold."""
_SPACES = re.compile(r"\s+")
_CALLS = {
    "allreduce": "all_reduce",
    "allreducebarrier": "barrier",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcastoop": "broadcast",
    "coalesced": "batch_isend_irecv",
}
"""What recorders and logs call an operation, without underscores -> what its users call it."""


def fit_headline(tellings: Iterable[str], barest: str) -> str:
    """The first telling that fits, as a sentence. `barest` holds no text of the evidence, so it always does."""
    shown = (_sentence(telling) for telling in (*tellings, barest))
    return next(text for text in shown if len(text) <= MAX_HEADLINE)


def _sentence(text: str) -> str:
    plain = _SPACES.sub(" ", text).strip()
    return f"{plain[:1].upper()}{plain[1:]}{'' if plain.endswith(('.', '?', '!')) else '.'}"


def with_endings(main: str, *endings: str) -> tuple[str, ...]:
    """With all endings, with all but the last, ..., with none."""
    return tuple(dict.fromkeys("".join((main, *endings[:count])) for count in range(len(endings), -1, -1)))


def plain_ranks(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0-3 and 5-7`, `512 ranks` where they are too many to say."""
    *first, last = format_ranks(ranks).split(",")
    if len(first) >= _MAX_RANGES:
        return f"{len(set(ranks))} ranks"
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {listed}"


def the_others(ranks: Collection[int], apart: Collection[int], world: Collection[int]) -> str:
    """`the other 7` where these and `apart` are all there are; else by their numbers."""
    everyone = set(ranks) | set(apart) == set(world) and apart
    return f"the other {len(ranks)}" if everyone and len(ranks) > 1 else plain_ranks(ranks)


def plain_call(op: str | None) -> str:
    """`all_reduce`, whatever the recorder calls it."""
    name = (op or "").rpartition(":")[2].partition(" ")[0].lower().lstrip("_").removesuffix("_coalesced")
    known = _CALLS.get(name.replace("_", ""), name)
    return known if _NAME.fullmatch(known) else "a call"


def plain_place(stack: Stack | None) -> str | None:
    """`train.py:40`: the innermost line of the user's own code."""
    frame = next(iter(user_frames(stack)), None)
    return plain_line(frame.filename, frame.line) if frame else None


def plain_line(file: str, line: int) -> str | None:
    name = short_name(file)
    return f"{name}:{line}" if _NAME.fullmatch(name) else None


def quoted(code: str) -> str | None:
    """Code that is short enough to stand in a sentence."""
    plain = _SPACES.sub(" ", code).strip()
    return f"`{plain}`" if plain and len(plain) <= _MAX_QUOTE and "`" not in plain else None
