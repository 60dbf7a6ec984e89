"""What a program calls its ranks at the start of the lines of a shared console, and how many ranks it says there are.

    2026-11-19 23:19:35,990 stage2 | step 0 0.062s        [23:32:46][server] serving 4 workers
    2026-11-19 23:19:35,991 stage1 | step 0 0.054s        [23:32:46][worker-1] step 0 loss 2.0853

Nothing in a single line shows that such a word means a rank; only all lines together do.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

STAMP = r"(?:[\[(]?\d[\d:.,/TZ+ -]{4,40}[\])]?[ |]{0,3})?"
LEVEL = r"(?:[\[(]?(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|[DIWEC])[\])]?[ :|-]{1,9})?"
_LABEL = re.compile(
    rf"{STAMP}{LEVEL}(?P<open>[\[(<]?)(?P<word>[A-Za-z][A-Za-z_]{{1,19}})(?P<apart>[ _:#-](?=\d))?(?P<number>\d{{1,5}})?(?P<close>[\])>]| ?[:|]|(?= ))"
)
_COUNTS = frozenset({
    *("step", "iter", "iteration", "epoch", "batch", "microbatch", "micro", "round", "cycle", "phase", "chunk", "layer", "block"),
    *("fold", "trial", "attempt", "try", "retry", "run", "seed", "shard", "file", "part", "page", "line", "item", "sample", "episode"),
    *("episodes", "tick", "version", "bucket", "level", "node", "host", "gpu", "cuda", "device", "thread", "pid", "job", "test", "case"),
})  # fmt: skip
"""Words whose numbers count something other than ranks."""
_DECIMALS = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
_FEWEST = 3
"""Minimum number of lines: with fewer, nothing shows that each contains such a number."""
_SIZE = re.compile(
    r"(?:(?P<of>[A-Za-z]{1,12})[ _])?\b(?:(?:world[_ -]?size|WORLD_SIZE)\b[\"']?(?: ?[=:] ?| )|world\b[\"']? ?[=:] ?)(?P<size>\d{1,6})\b(?![.\w])"
    r"|\bGLOBAL_RANK: \d{1,6}, MEMBER: \d{1,6}/(?P<members>\d{1,6})\b"
    r"|\bdistributed processes registered\. Starting with (?P<processes>\d{1,6}) processes"
)
"""How many ranks the job has, as programs and Lightning print it."""
_OF_A_PART = frozenset({
    *("tp", "dp", "pp", "cp", "ep", "mp", "sp", "tensor", "data", "pipeline", "model", "expert", "context", "sequence", "group"),
    *("local", "node", "sub", "subgroup", "mesh", "shard", "replica", "replicate", "parallel", "old", "previous"),
})  # fmt: skip
"""Words before `world_size` that make it the size of something smaller."""

Style = tuple[str, str]
"""The characters around a label."""


def stated_sizes(message: str) -> Iterator[int]:
    for found in _SIZE.finditer(message):
        if (found["of"] or "").lower() not in _OF_A_PART:
            yield int(found["size"] or found["members"] or found["processes"])


class Label(Struct, frozen=True):
    style: Style
    word: str
    number: int | None
    rest: str
    """The line after it, without numbers that have decimals: a rank does not print the same twice."""

    @property
    def name(self) -> tuple[Style, str, int | None]:
        return self.style, self.word, self.number


def read_label(message: str) -> Label | None:
    found = _LABEL.match(message)
    if found is None or bool(found["open"]) != bool(found["close"].strip(" :|")):
        return None
    if not (found["open"] or found["number"]) or (not found["close"] and found["apart"]):
        return None  # a word, or a word and a number of a sentence
    number = int(found["number"]) if found["number"] else None
    return Label(
        (found["open"], found["close"].strip()), found["word"], number, _DECIMALS.sub("#", message[found.end() :])
    )


def ranks_of(labels: list[Label], lines: int, heard: frozenset[int]) -> dict[tuple[Style, str, int | None], int]:
    """Ranks by their labels, if most lines have one of one style, and they are `WORD0` to `WORDn`, or `[WORD1]` to `[WORDn]` and
    one without a number, as a server before its workers. `lines`: of the program; `heard`: ranks that torch's own lines name.
    """
    numbered = Counter((one.style, one.word) for one in labels if one.number is not None)
    if not numbered:
        return {}
    (style, word), _ = numbered.most_common(1)[0]
    alike = [one for one in labels if one.style == style]
    numbers = {one.number for one in alike if one.word == word and one.number is not None}
    others = {one.word for one in alike if one.number is None}
    if word.lower() in _COUNTS or 5 * len(alike) < 4 * lines or len(alike) < _FEWEST:
        return {}
    found: dict[tuple[Style, str, int | None], int] = {(style, word, number): number for number in numbers}
    if min(numbers) == 1 and len(others) == 1 and style[0]:
        found[style, others.pop(), None] = 0
    every = sorted(found.values()) == list(range(len(found))) and len(found) > 1
    spoken = [found[one.name] for one in alike if one.name in found]
    return found if every and heard <= set(spoken) and _speak_freely(alike, spoken) else {}


def _speak_freely(labels: list[Label], spoken: list[int]) -> bool:
    """As separate processes do: in turns, but not in a fixed order, as numbers that count do; and none prints a line twice, as
    several ranks with one label would.
    """
    size = len(set(spoken))
    in_order = sum(later == (one + 1) % size for one, later in pairwise(spoken))
    again = sum(count - 1 for count in Counter((one.name, one.rest) for one in labels).values())
    return take_turns(spoken) and in_order < len(spoken) - 1 and 4 * again <= len(labels)


def take_turns(numbers: list[int]) -> bool:
    """Ranks do; numbers of steps would only grow."""
    turns = sum(later < one for one, later in pairwise(numbers))
    return turns * 2 * len(set(numbers)) >= len(numbers)
