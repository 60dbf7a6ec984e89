"""Redacting logs at the speed of a disk: lines like one that held nothing are passed on without a look.

Two lines are alike if they differ in digits and pointers alone. Most of a log is a few hundred kinds of lines, and a kind is called
clean once no digits can make it hold anything. Of other kinds it may be that all they hold stands in one place, as the host
in NCCL's lines: then what stood there once is replaced by the same again (`marked`). All the care is in `are_clean`; what
it doubts takes the slow way.
"""

import re
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from itertools import accumulate

from forkpoint.collect.bundle.environment import mask_environments, may_list
from forkpoint.collect.bundle.marked import Marked
from forkpoint.redact import Redactor

_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
_POINTER = re.compile(rb"x(?<=\W0x)[0-9a-f]{4,16}(?!\w)")
"""What redaction asks of one is how long it is. It begins with a rare letter, for which Python's `re` looks quickly."""
_KINDS_AT_MOST = 200_000
_FEW, _WORTH_LEARNING = 1_000, 4
"""A kind with fewer lines than this is not learnt once there are many kinds."""
_ADDRESS = re.compile(r"0{1,3}\.0{1,3}\.0{1,3}\.0")
_WITH_DIGITS = re.compile(r"ya00\.|_v0_|(?:guid|host|ip|mac|mail|user)-0")
"""Where redaction asks for certain digits."""
_PRIVATE_KEY = b"PRIVATE KEY-----"


class Lines:
    """What it has learnt of a log's lines holds as long as its redactor."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._scout = deepcopy(redactor)
        self._named = _kinds(redactor.map.values())
        self._clean: set[bytes] = set()
        self._other: set[bytes] = set()
        self._marked = Marked(self._are_clean, self._count)

    def redact(self, data: bytes) -> bytes:
        """Whole lines in, as many lines out."""
        kinds = _kind(data).split(b"\n")
        there = set(kinds)
        if there <= self._clean:
            return data
        if any(may_list(kind) for kind in there - self._clean):
            data = mask_environments(data, self._redactor.names.counts)
            kinds = _kind(data).split(b"\n")
            there = set(kinds)
        if _PRIVATE_KEY in data:  # the one thing that goes over several lines
            return self._slowly(data)
        self._learn(there - self._clean - self._other, len(kinds))
        doubtful = there - self._clean
        places = [place for place, kind in enumerate(kinds) if kind in doubtful]
        return self._redact_some(data, kinds, places) if places else data

    def _redact_some(self, data: bytes, kinds: list[bytes], places: list[int]) -> bytes:
        """`places`: which lines. All others stay as they are, so they are not even cut out."""
        ends = list(accumulate(map(len, kinds)))  # a line is as long as its kind, and behind each stands a newline
        spans = [(ends[place] - len(kinds[place]) + place, ends[place] + place) for place in places]
        lines = [data[start:end] for start, end in spans]
        redacted = self._redact_lines([kinds[place] for place in places], lines)
        done: list[bytes] = []
        at = 0
        for (start, end), line in zip(spans, redacted, strict=True):
            done += (data[at:start], line)
            at = end
        return b"".join((*done, data[at:]))

    def _redact_lines(self, kinds: list[bytes], lines: list[bytes]) -> list[bytes]:
        """Lines whose answer is known are left out of the slow way: they bring no new name, so all are met in order."""
        counts = self._redactor.names.counts
        known = self._marked.answers(kinds, lines, counts)
        unknown = [place for place, answer in enumerate(known) if answer is None]
        if unknown:
            new = [lines[place] for place in unknown]
            redacted = self._slowly(b"\n".join(new)).split(b"\n")
            self._marked.learn([kinds[place] for place in unknown], new, redacted)
            for place, line in zip(unknown, redacted, strict=True):
                known[place] = line
        return [line for line in known if line is not None]

    def _slowly(self, data: bytes) -> bytes:
        return _encoded(self._redactor.redact(_decoded(data)))

    def _learn(self, kinds: set[bytes], lines: int) -> None:
        new = list(kinds)
        if not new or (len(new) > _FEW and len(new) * _WORTH_LEARNING > lines):
            return  # few lines are alike here: to look at kinds and lines costs more than to look at lines
        if len(self._clean) + len(self._other) > _KINDS_AT_MOST:
            self._clean.clear()
            self._other.clear()
        for kind, is_clean in zip(new, self._are_clean(new), strict=True):
            (self._clean if is_clean else self._other).add(kind)

    def _are_clean(self, kinds: list[bytes]) -> list[bool]:
        """Whether no line of a kind holds anything. Its digits are zeros here; where redaction looks at their values
        (addresses, known names, few patterns) it is not; elsewhere one digit is as good as another.
        """
        if not kinds:
            return []
        texts = [_decoded(kind) for kind in kinds]
        clean = [
            not (
                _ADDRESS.search(text)
                or _WITH_DIGITS.search(text)
                or may_list(kind)
                or any(name in text for name in self._named)
            )
            for kind, text in zip(kinds, texts, strict=True)
        ]
        for digit in "012":
            lines = [text.replace("0", digit) for text in texts]
            after = self._scout.redact("\n".join(lines)).split("\n")
            clean = [was and line == now for was, line, now in zip(clean, lines, after, strict=True)]
        return clean

    def _count(self, line: bytes) -> Counter[str]:
        """What is replaced in one line, and how often."""
        before = Counter(self._scout.names.counts)
        self._scout.redact(_decoded(line))
        return self._scout.names.counts - before


def _kinds(names: Iterable[str]) -> tuple[str, ...]:
    """What known names look like as kinds: ten thousand hosts are a few."""
    return tuple(sorted({_decoded(_kind(b"\n" + _encoded(name))[1:]) for name in names}))


def _kind(data: bytes) -> bytes:
    """As long as the data itself."""
    return _POINTER.sub(lambda found: b"x" + b"0" * (len(found[0]) - 1), data.translate(_ZEROS))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
