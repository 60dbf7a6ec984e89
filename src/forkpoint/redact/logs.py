"""Redacts long logs fast: in pieces, with one check per kind of line."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import BinaryIO

from forkpoint.redact import Redactor
from forkpoint.redact.across import asks_for_next, goes_on
from forkpoint.redact.environments import mask_environments, may_list
from forkpoint.redact.hidden import ESCAPED_DIGITS, PERCENT
from forkpoint.redact.rules import asks_for_digits

# ---------------------------------------------------------------------------------------------------------------------
# Splits a log into pieces that can be redacted separately: no secret or name spans two pieces.

PIECE = 4 << 20
_KEY_AT_MOST = 1 << 16
"""Longest private key in a log, in bytes."""
_LISTING_AT_MOST = 500
_SPACE = re.compile(rb"[\s,;]")
_ENDLESS = b"[masked-endless-line]\n"
_NAME = re.compile(
    rb"(?i)pass|pwd|secret|token|key|auth|cred|cookie|login|bearer|sig|name|value|begin|-[pua]\b|--|[:=][\"'\\]{0,4}\Z"
)
"""After such a word, the next words may be a secret."""
_WORDS_TO_A_VALUE = 4


def pieces(stream: BinaryIO, size: int = PIECE) -> Iterator[bytes]:
    """Pieces of whole lines; only the last may lack a line end. A line longer than `size` is cut between words, where no name
    before the cut could announce a secret after it. Without such a place it is dropped: a cut could split a secret.
    """
    source = io.BufferedReader(stream, size) if isinstance(stream, io.RawIOBase) else stream
    rest = b""
    while data := source.read(size):
        data = rest + data
        if len(data) < size:  # the end of the stream: a last line without a line end is not cut off
            rest = data
            continue
        end = _piece_end(data, size)
        if end is None:
            yield _ENDLESS
            rest = _after_line(source)
            continue
        if end:
            yield data[:end]
        rest = data[end:]
    if rest:
        yield rest


def _piece_end(data: bytes, size: int) -> int | None:
    """Where the piece can end; 0: more must be read first; None: nowhere."""
    end = data.rfind(b"\n") + 1
    if not end:
        return 0 if len(data) < size else _within_line(data)
    for before in (_before_key, _before_going_on, _before_listing):
        place = before(data, end)
        if place is not None:
            return place
    return end


def _within_line(data: bytes) -> int | None:
    ends = [match.end() for match in _SPACE.finditer(data, max(0, len(data) - _KEY_AT_MOST))]
    for place in range(len(ends) - 1, _WORDS_TO_A_VALUE - 1, -1):
        if not _NAME.search(data[ends[place - _WORDS_TO_A_VALUE] : ends[place] - 1]):
            return ends[place]
    return None


def _before_going_on(data: bytes, end: int) -> int | None:
    """The start of the last line that is not blank, if the next line may continue it."""
    start = data.rfind(b"\n", 0, len(data[:end].rstrip())) + 1
    return start if asks_for_next(_decoded(data[start:end])) else None


def _before_key(data: bytes, end: int) -> int | None:
    """The start of the line in which an unfinished private key begins."""
    begun = data.rfind(b"-----BEGIN ", max(0, end - _KEY_AT_MOST), end)
    if begun < 0 or data.find(b"-----END ", begun, end) >= 0:
        return None
    return data.rfind(b"\n", 0, begun) + 1


def _before_listing(data: bytes, end: int) -> int | None:
    """The start of a listing of variables at the end of the piece."""
    for _ in range(_LISTING_AT_MOST):
        start = data.rfind(b"\n", 0, end - 1) + 1
        if not start or not may_list(data[start : end - 1]):
            return end
        end = start
    return None


def _after_line(source: BinaryIO) -> bytes:
    """Skips the rest of the current line. Returns what was read after it."""
    while data := source.read(PIECE):
        place = data.find(b"\n") + 1
        if place:
            return data[place:]
    return b""


# ---------------------------------------------------------------------------------------------------------------------
# Kinds of lines in which everything to replace is in one place: `gpu-7:4000:4000 [0] NCCL INFO ...`.
#
# Lines of a kind differ only in digits, so the place is the same in all of them. If the rest of the kind is clean, the
# replacement depends only on the text in that place, and can be cached.

_LINES_WORTH_LEARNING = 4
"""Minimum number of lines of a kind in one piece."""
_ANSWERS_AT_MOST = 100_000
_BLANK = re.compile(rb"[ \t]")


@dataclass(frozen=True, slots=True, eq=False)
class _Replacement:
    text: bytes
    counts: tuple[tuple[str, int], ...]
    """What was replaced, and how often."""


@dataclass(frozen=True, slots=True)
class _Mark:
    start: int
    end: int
    """The place consists of whole words, so it does not cut anything that is searched for."""
    answers: dict[bytes, _Replacement] = field(default_factory=dict[bytes, _Replacement])
    """By the original text in that place."""


class Marked:
    def __init__(self, are_clean: Callable[[list[bytes]], list[bool]], count: Callable[[bytes], Counter[str]]) -> None:
        """`are_clean`: whether lines of these kinds need no redaction, whatever their digits. `count`: replacements in a line."""
        self._are_clean, self._count = are_clean, count
        self._marks: dict[bytes, _Mark] = {}
        self._never: set[bytes] = set()
        self._held = 0

    def answers(self, kinds: Sequence[bytes], lines: Sequence[bytes], counts: Counter[str]) -> list[bytes | None]:
        """Each line redacted, or None if it is not cached. Adds to `counts`."""
        marks = self._marks
        done: list[bytes | None] = []
        used: list[_Replacement] = []
        for kind, line in zip(kinds, lines, strict=True):
            mark = marks.get(kind)
            answer = mark.answers.get(line[mark.start : mark.end]) if mark else None
            if mark is None or answer is None:
                done.append(None)
            else:
                used.append(answer)
                done.append(line[: mark.start] + answer.text + line[mark.end :])
        for answer, times in Counter(used).items():
            for what, count in answer.counts:
                counts[what] += count * times
        return done

    def learn(self, kinds: Sequence[bytes], lines: Sequence[bytes], redacted: Sequence[bytes]) -> None:
        """Caches replacements from lines that were redacted in full."""
        if self._held > _ANSWERS_AT_MOST:
            self._marks.clear()
            self._held = 0
        by_kind: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
        for kind, line, after in zip(kinds, lines, redacted, strict=True):
            if kind not in self._never:
                by_kind[kind].append((line, after))
        self._mark_new({kind: pairs for kind, pairs in by_kind.items() if len(pairs) >= _LINES_WORTH_LEARNING})
        for kind, pairs in by_kind.items():
            if kind in self._marks:
                self._keep(kind, self._marks[kind], pairs)

    def _mark_new(self, by_kind: dict[bytes, list[tuple[bytes, bytes]]]) -> None:
        places: dict[bytes, tuple[int, int]] = {}
        for kind in by_kind.keys() - self._marks.keys():
            changed = [_changed(line, after) for line, after in by_kind[kind] if line != after]
            if changed:
                places[kind] = min(start for start, _ in changed), max(end for _, end in changed)
        blanked = [kind[:start] + b"x" * (end - start) + kind[end:] for kind, (start, end) in places.items()]
        for (kind, place), clean in zip(places.items(), self._are_clean(blanked), strict=True):
            if clean:
                self._marks[kind] = _Mark(*place)
            else:
                self._never.add(kind)

    def _keep(self, kind: bytes, mark: _Mark, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        for line, after in pairs:
            start, end = mark.start, len(after) - (len(line) - mark.end)
            if line[:start] != after[:start] or line[mark.end :] != after[end:] or end < start:
                self._never.add(kind)
                del self._marks[kind]
                return
            word = line[start : mark.end]
            if word not in mark.answers:
                mark.answers[word] = _Replacement(after[start:end], tuple(self._count(line).items()))
                self._held += 1


def _changed(line: bytes, after: bytes) -> tuple[int, int]:
    """The range from the first to the last changed word of a line."""
    front = _common(line, after)
    rest = min(len(line), len(after)) - front
    back = _common(line[len(line) - rest :][::-1], after[len(after) - rest :][::-1])
    start = max((blank.end() for blank in _BLANK.finditer(line, 0, front)), default=0)
    end = _BLANK.search(line, max(len(line) - back, front))
    return start, end.start() if end else len(line)


def _common(one: bytes, two: bytes) -> int:
    """The length of the common prefix."""
    alike, beyond = 0, min(len(one), len(two)) + 1
    while beyond - alike > 1:
        middle = (alike + beyond) // 2
        if one[alike:middle] == two[alike:middle]:
            alike = middle
        else:
            beyond = middle
    return alike


# ---------------------------------------------------------------------------------------------------------------------
# Redacting logs at the speed of a disk: lines of a kind that needs no redaction are passed on unchecked.
#
# Lines that differ only in digits and pointers are of one kind. Most of a log consists of a few hundred kinds. A kind is
# clean if its lines need no redaction, whatever their digits. In other kinds everything to replace may be in one place,
# like the host in NCCL's lines: then replacements are cached (`Marked`). `_are_clean` must be careful; whatever it is not
# sure of is redacted in full.

_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
_POINTER = re.compile(rb"x(?<=\W0x)[0-9a-f]{4,16}(?!\w)")
"""Only the length of a pointer matters for redaction. The pattern starts with a rare letter, which `re` finds quickly."""
_KINDS_AT_MOST = 200_000
_FEW, _KINDS_WORTH_LEARNING = 1_000, 4
"""If a piece has more than `_FEW` new kinds, they are learnt only if each has on average this many lines."""
_ADDRESS = re.compile(r"0{1,3}\.0{1,3}\.0{1,3}\.0")
_WITH_DIGITS = re.compile(r"ya00\.|_v0_|:0000:|\b0za? ")
"""Patterns that depend on certain digits."""
_LIKE_PSEUDONYM = re.compile(r"(?:guid|host|ip|mac|mail|user)-0")


class Lines:
    """Redacts lines and remembers which kinds are clean, for one redactor."""

    def __init__(self, redactor: Redactor, *, are_redacted: bool = False) -> None:
        """`are_redacted`: the log was redacted before, so anything that looks like a pseudonym is one."""
        self._redactor = redactor
        self._are_redacted = are_redacted
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
        if goes_on(_decoded(b"\n".join(there - self._clean)) + "\n"):
            return self._slowly(data)
        self._learn(there - self._clean - self._other, len(kinds))
        doubtful = there - self._clean
        places = [place for place, kind in enumerate(kinds) if kind in doubtful]
        return self._redact_some(data, kinds, places) if places else data

    def _redact_some(self, data: bytes, kinds: list[bytes], places: list[int]) -> bytes:
        """`places`: the indexes of the lines to redact. All others stay as they are."""
        ends = list(accumulate(map(len, kinds)))  # a line is as long as its kind; a newline follows each
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
        """Uses cached replacements where possible. They contain no new names, so pseudonyms are still numbered in order."""
        counts = self._redactor.names.counts
        known = self._marked.answers(kinds, lines, counts)
        unknown = [place for place, answer in enumerate(known) if answer is None]
        if unknown:
            new = [lines[place] for place in unknown]
            redacted = _encoded(self._redactor.redact_lines(_decoded(b"\n".join(new)))).split(b"\n")
            self._marked.learn([kinds[place] for place in unknown], new, redacted)
            for place, line in zip(unknown, redacted, strict=True):
                known[place] = line
        return [line for line in known if line is not None]

    def _slowly(self, data: bytes) -> bytes:
        return _encoded(self._redactor.redact(_decoded(data)))

    def _learn(self, kinds: set[bytes], lines: int) -> None:
        new = list(kinds)
        if not new or (len(new) > _FEW and len(new) * _KINDS_WORTH_LEARNING > lines):
            return  # few lines are of the same kind: checking kinds first would only add work
        if len(self._clean) + len(self._other) > _KINDS_AT_MOST:
            self._clean.clear()
            self._other.clear()
        for kind, is_clean in zip(new, self._are_clean(new), strict=True):
            (self._clean if is_clean else self._other).add(kind)

    def _are_clean(self, kinds: list[bytes]) -> list[bool]:
        """Whether lines of these kinds need no redaction. All digits are zeros here. A kind in which digits matter (addresses,
        known names, a few patterns) is not clean; elsewhere the redactor treats all digits alike.
        """
        if not kinds:
            return []
        texts = [_decoded(kind) for kind in kinds]
        clean = [
            not (
                _ADDRESS.search(text)
                or _WITH_DIGITS.search(text)
                or (not self._are_redacted and _LIKE_PSEUDONYM.search(text))
                or may_list(kind)
                or PERCENT.search(text)
                or ESCAPED_DIGITS.search(text)
                or asks_for_digits(text)
                or goes_on(text + "\n")
                or any(name in text for name in self._named)
            )
            for kind, text in zip(kinds, texts, strict=True)
        ]
        for digit in "012":
            lines = [text.replace("0", digit) for text in texts]
            after = self._scout.redact_lines("\n".join(lines)).split("\n")
            clean = [was and line == now for was, line, now in zip(clean, lines, after, strict=True)]
        return clean

    def _count(self, line: bytes) -> Counter[str]:
        """What is replaced in one line, and how often."""
        before = Counter(self._scout.names.counts)
        self._scout.redact(_decoded(line))
        return self._scout.names.counts - before


def _kinds(names: Iterable[str]) -> tuple[str, ...]:
    """Known names with their digits as zeros: ten thousand hosts become a few."""
    return tuple(sorted({_decoded(_kind(b"\n" + _encoded(name))[1:]) for name in names}))


def _kind(data: bytes) -> bytes:
    """The data with digits and pointers as zeros; it keeps its length."""
    return _POINTER.sub(lambda found: b"x" + b"0" * (len(found[0]) - 1), data.translate(_ZEROS))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
