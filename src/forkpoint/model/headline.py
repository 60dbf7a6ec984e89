"""The sentence with which every report begins: who did what where, and why, in at most 160 characters.

Callers offer several versions, the most detailed first; the first that fits is used. A sentence is never truncated.
"""

import re
from collections.abc import Collection, Iterable

from forkpoint.model.frames import installed_path, short_name, user_frames
from forkpoint.model.op import Stack
from forkpoint.model.world import format_ranks

MAX_HEADLINE = 160
UNKNOWN_CALL = "a call"

_MAX_RANGES = 4
_MAX_QUOTE = 60
_MAX_WORDS = 90
_FIRST_SENTENCE = re.compile(r"\. |\n|\.$")
_NAME = re.compile(r"[\w.+-]{1,40}")
"""A file or operation name that can be put into a sentence."""
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
"""Names in recorders and logs, without underscores -> the name that users know."""


def fit_headline(versions: Iterable[str], shortest: str) -> str:
    """The first version that fits, as a sentence. `shortest` quotes no evidence, so it always fits."""
    shown = (_sentence(version) for version in (*versions, shortest))
    return next(text for text in shown if len(text) <= MAX_HEADLINE)


def _sentence(text: str) -> str:
    plain = _SPACES.sub(" ", text).strip()
    return f"{plain[:1].upper()}{plain[1:]}{'' if plain.endswith(('.', '?', '!')) else '.'}"


def with_endings(main: str, *endings: str) -> tuple[str, ...]:
    """With all endings, with all but the last, ..., with none."""
    return tuple(dict.fromkeys("".join((main, *endings[:count])) for count in range(len(endings), -1, -1)))


def plain_ranks(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0-3 and 5-7`, or `512 ranks` if there are too many ranges."""
    *first, last = format_ranks(ranks).split(",")
    if len(first) >= _MAX_RANGES:
        return f"{len(set(ranks))} ranks"
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {listed}"


def the_others(ranks: Collection[int], apart: Collection[int], world: Collection[int]) -> str:
    """`the other 7` if `ranks` and `apart` together are the whole world; otherwise `ranks 0-6`."""
    everyone = set(ranks) | set(apart) == set(world) and apart
    return f"the other {len(ranks)}" if everyone and len(ranks) > 1 else plain_ranks(ranks)


def plain_call(op: str | None) -> str:
    """`all_reduce`, whatever the recorder calls it."""
    if op == UNKNOWN_CALL:
        return op
    name = (op or "").rpartition(":")[2].partition(" ")[0].lower().lstrip("_").removesuffix("_coalesced")
    known = _CALLS.get(name.replace("_", ""), name)
    return known if _NAME.fullmatch(known) else UNKNOWN_CALL


def definite(call: str) -> str:
    """`the all_reduce at train.py:40`; `the call` where its name is not known."""
    return f"the {call.removeprefix('a ') if call.startswith(UNKNOWN_CALL) else call}"


def plain_place(stack: Stack | None) -> str | None:
    """`train.py:40`: the innermost line of the user's own code; of an installed package only where there is no other."""
    frames = user_frames(stack)
    frame = next((f for f in frames if installed_path(f) is None), next(iter(frames), None))
    return plain_line(frame.filename, frame.line) if frame else None


def plain_line(file: str, line: int) -> str | None:
    name = short_name(file)
    return f"{name}:{line}" if _NAME.fullmatch(name) else None


def quoted(code: str) -> str | None:
    """Code in backticks; None if it is too long for a sentence."""
    plain = _SPACES.sub(" ", code).strip()
    return f"`{plain}`" if plain and len(plain) <= _MAX_QUOTE and "`" not in plain else None


def first_words(text: str) -> str | None:
    """The first sentence of what was printed, if it is short enough to be quoted in full."""
    words = first_sentence(text).rstrip(".;")
    return words if words and is_quotable(words) else None


def first_sentence(text: str) -> str:
    return _FIRST_SENTENCE.split(text.strip(), maxsplit=1)[0]


def quote_error(text: str) -> str:
    """`KeyError ("'fr'")`: the message in quotes, and only its first sentence, so that the reader sees where it ends."""
    kind, _, said = first_sentence(text).partition(": ")
    return f'{kind} ("{said}")' if said else kind


def is_quotable(words: str) -> bool:
    return len(words) <= _MAX_WORDS and "…" not in words
