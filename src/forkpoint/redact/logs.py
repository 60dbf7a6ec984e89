"""Redacts long logs fast: in pieces, one look per kind of line, and with environment listings masked."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import BinaryIO

from forkpoint.knowledge.variables import may_be_shown
from forkpoint.redact import Redactor
from forkpoint.redact.across import asks_for_next, goes_on
from forkpoint.redact.hidden import PERCENT
from forkpoint.redact.rules import asks_for_digits

# ---------------------------------------------------------------------------------------------------------------------
# Environments that a log prints: of variables not known to be harmless, only the name is kept.
#
# A single `NAME=value` is a log's own; five lines of them are a listing (`env`, `export -p`), also inside a text of
# JSON. So are `environ({...})` and `"env": {...}`.

_VARIABLE_LINE = rb"(?:export |declare -x )?[A-Za-z_][A-Za-z0-9_]{0,100}=[^\n]{0,32768}"
_LISTING = re.compile(rb"\n(?:" + _VARIABLE_LINE + rb"(?:\n|\Z)){5,}")
_VARIABLE = re.compile(rb"^((?:export |declare -x )?)([A-Za-z_][A-Za-z0-9_]{0,100})=([^\n]*)", re.MULTILINE)
_ESCAPED = re.compile(rb"(?:\\n(?:export |declare -x )?[A-Za-z_][A-Za-z0-9_]{0,100}=[^\\\n\"]{0,4096}){5,}")
_ESCAPED_VARIABLE = re.compile(rb"(\\n(?:export |declare -x )?)([A-Za-z_][A-Za-z0-9_]{0,100})=([^\\\n\"]{0,4096})")
_SHOWN = re.compile(rb"environ\(\{[^\n]*")
_JSON = re.compile(rb'"(?:env|environ|environment)"\s{0,4}:\s{0,4}\{[^{}]{0,200000}\}')
_JSON_PAIR = re.compile(rb'"([A-Za-z_][A-Za-z0-9_]{0,100})"(\s{0,4}:\s{0,4})"((?:[^"\\\n]|\\.)*)"')
_PAIR = re.compile(rb"""'([A-Za-z_][A-Za-z0-9_]{0,100})': (?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
_LISTED = re.compile(_VARIABLE_LINE + rb"\Z")
_MASK = "[masked-variable]"


def may_list(line: bytes) -> bool:
    """Whether a line may belong to a listing, or hold one."""
    return _LISTED.match(line) is not None or any(sign in line for sign in (b"environ({", b'"env', b"\\n"))


def mask_environments(text: bytes, counts: Counter[str]) -> bytes:
    """Counts what it masks as `variable`."""

    def listing(match: re.Match[bytes]) -> bytes:
        return _VARIABLE.sub(variable, match[0])

    def variable(match: re.Match[bytes]) -> bytes:
        return match[0] if _may_stay(match[2], match[3]) else masked(match[1] + match[2] + b"=")

    def shown(match: re.Match[bytes]) -> bytes:
        return _PAIR.sub(lambda pair: pair[0] if _may_stay(pair[1], b"") else masked(b"'" + pair[1] + b"': "), match[0])

    def in_json(match: re.Match[bytes]) -> bytes:
        return _JSON_PAIR.sub(pair_of_json, match[0])

    def pair_of_json(match: re.Match[bytes]) -> bytes:
        kept = _may_stay(match[1], match[3])
        return match[0] if kept else masked(b'"' + match[1] + b'"' + match[2] + b'"') + b'"'

    def masked(front: bytes) -> bytes:
        counts["variable"] += 1
        return front + _MASK.encode()

    if _LISTING.search(b"\n" + text[:32768]) or _LISTING.search(text):
        text = _LISTING.sub(listing, b"\n" + text)[1:]
    if b"\\n" in text:
        text = _ESCAPED.sub(lambda match: _ESCAPED_VARIABLE.sub(variable, match[0]), text)
    if b'"env' in text:
        text = _JSON.sub(in_json, text)
    return _SHOWN.sub(shown, text) if b"environ({" in text else text


def _may_stay(name: bytes, value: bytes) -> bool:
    return value.startswith(_MASK.encode()) or may_be_shown(name.decode("ascii"))


# ---------------------------------------------------------------------------------------------------------------------
# Cuts a log into pieces that can be redacted separately: no secret or name spans two pieces.

PIECE = 4 << 20
_KEY_AT_MOST = 1 << 16
"""Bytes of a private key in a log."""
_LISTING_AT_MOST = 500
_SPACE = re.compile(rb"[\s,;]")
_ENDLESS = b"[masked-endless-line]\n"
_NAME = re.compile(
    rb"(?i)pass|pwd|secret|token|key|auth|cred|cookie|login|bearer|sig|name|value|begin|-[pua]\b|--|[:=][\"'\\]{0,4}\Z"
)
"""What may give away the next word, or the one after it."""
_WORDS_TO_A_VALUE = 4


def pieces(stream: BinaryIO, size: int = PIECE) -> Iterator[bytes]:
    """Whole lines; the last may have no end. A line that is longer than `size` is cut where words end and no name stands that
    could belong to what follows; where it has no such place, it is left out: half a secret could stand at either end of a cut.
    """
    source = io.BufferedReader(stream, size) if isinstance(stream, io.RawIOBase) else stream
    rest = b""
    while data := source.read(size):
        data = rest + data
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
    """Behind the last line that can be cut from the next; 0 where more has to be read first. None: nowhere."""
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
    """The last line, where its value or its rest may stand on the next."""
    start = data.rfind(b"\n", 0, end - 1) + 1
    return start if asks_for_next(_decoded(data[start:end])) else None


def _before_key(data: bytes, end: int) -> int | None:
    """The line in which a private key begins that does not end here."""
    begun = data.rfind(b"-----BEGIN ", max(0, end - _KEY_AT_MOST), end)
    if begun < 0 or data.find(b"-----END ", begun, end) >= 0:
        return None
    return data.rfind(b"\n", 0, begun) + 1


def _before_listing(data: bytes, end: int) -> int | None:
    """The first of the variables that a piece would end with."""
    for _ in range(_LISTING_AT_MOST):
        start = data.rfind(b"\n", 0, end - 1) + 1
        if not start or not may_list(data[start : end - 1]):
            return end
        end = start
    return None


def _after_line(source: BinaryIO) -> bytes:
    """What follows the line that is being read."""
    while data := source.read(PIECE):
        place = data.find(b"\n") + 1
        if place:
            return data[place:]
    return b""


# ---------------------------------------------------------------------------------------------------------------------
# Kinds of lines in which all that is replaced stands in one place: `gpu-7:4000:4000 [0] NCCL INFO ...`.
#
# Lines of a kind differ in digits alone, so the place is the same in all of them. If the rest of the kind is clean, a
# line is known by the text in that place: the slow way gives the same answer for the same text.

_LINES_WORTH_LEARNING = 4
"""Lines of a kind in one piece."""
_ANSWERS_AT_MOST = 100_000
_BLANK = re.compile(rb"[ \t]")


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    text: bytes
    counts: tuple[tuple[str, int], ...]
    """What was replaced for it."""


@dataclass(frozen=True, slots=True)
class _Mark:
    start: int
    end: int
    """Whole words: nothing that is looked for is cut by it."""
    answers: dict[bytes, _Answer] = field(default_factory=dict[bytes, _Answer])
    """By the text in that place."""


class Marked:
    def __init__(self, are_clean: Callable[[list[bytes]], list[bool]], count: Callable[[bytes], Counter[str]]) -> None:
        """`are_clean`: whether no digits can make lines of these kinds hold anything. `count`: what is replaced in a line."""
        self._are_clean, self._count = are_clean, count
        self._marks: dict[bytes, _Mark] = {}
        self._never: set[bytes] = set()
        self._held = 0

    def answers(self, kinds: Sequence[bytes], lines: Sequence[bytes], counts: Counter[str]) -> list[bytes | None]:
        """Each line redacted, or None where the slow way must be asked. Adds to `counts`."""
        marks = self._marks
        done: list[bytes | None] = []
        used: list[_Answer] = []
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
        """From lines that went the slow way."""
        if self._held > _ANSWERS_AT_MOST:
            self._marks.clear()
            self._held = 0
        by_kind: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
        for kind, line, after in zip(kinds, lines, redacted, strict=True):
            if kind not in self._never:
                by_kind[kind].append((line, after))
        self._mark_new({kind: told for kind, told in by_kind.items() if len(told) >= _LINES_WORTH_LEARNING})
        for kind, told in by_kind.items():
            if kind in self._marks:
                self._keep(kind, self._marks[kind], told)

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

    def _keep(self, kind: bytes, mark: _Mark, told: Sequence[tuple[bytes, bytes]]) -> None:
        for line, after in told:
            start, end = mark.start, len(after) - (len(line) - mark.end)
            if line[:start] != after[:start] or line[mark.end :] != after[end:] or end < start:
                self._never.add(kind)
                del self._marks[kind]
                return
            word = line[start : mark.end]
            if word not in mark.answers:
                mark.answers[word] = _Answer(after[start:end], tuple(self._count(line).items()))
                self._held += 1


def _changed(line: bytes, after: bytes) -> tuple[int, int]:
    """From the first to the last word of a line that is not as it was."""
    front = _common(line, after)
    rest = min(len(line), len(after)) - front
    back = _common(line[len(line) - rest :][::-1], after[len(after) - rest :][::-1])
    start = max((blank.end() for blank in _BLANK.finditer(line, 0, front)), default=0)
    end = _BLANK.search(line, max(len(line) - back, front))
    return start, end.start() if end else len(line)


def _common(one: bytes, two: bytes) -> int:
    """How many bytes they begin with alike."""
    alike, beyond = 0, min(len(one), len(two)) + 1
    while beyond - alike > 1:
        middle = (alike + beyond) // 2
        if one[alike:middle] == two[alike:middle]:
            alike = middle
        else:
            beyond = middle
    return alike


# ---------------------------------------------------------------------------------------------------------------------
# Redacting logs at the speed of a disk: lines like one that held nothing are passed on without a look.
#
# Two lines are alike if they differ in digits and pointers alone. Most of a log is a few hundred kinds of lines, and a
# kind is called clean once no digits can make it hold anything. Of other kinds it may be that all they hold stands in
# one place, as the host in NCCL's lines: then what stood there once is replaced by the same again (`marked`). All the
# care is in `are_clean`; what it doubts takes the slow way.

_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
_POINTER = re.compile(rb"x(?<=\W0x)[0-9a-f]{4,16}(?!\w)")
"""What redaction asks of one is how long it is. It begins with a rare letter, for which Python's `re` looks quickly."""
_KINDS_AT_MOST = 200_000
_FEW, _KINDS_WORTH_LEARNING = 1_000, 4
"""A kind with fewer lines than this is not learnt once there are many kinds."""
_ADDRESS = re.compile(r"0{1,3}\.0{1,3}\.0{1,3}\.0")
_WITH_DIGITS = re.compile(r"ya00\.|_v0_")
"""Where redaction asks for certain digits."""
_LIKE_PSEUDONYM = re.compile(r"(?:guid|host|ip|mac|mail|user)-0")


class Lines:
    """What it has learnt of a log's lines holds as long as its redactor."""

    def __init__(self, redactor: Redactor, *, are_redacted: bool = False) -> None:
        """`are_redacted`: what looks like a pseudonym is one, whatever its number, as in a log that was redacted before."""
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
                or (not self._are_redacted and _LIKE_PSEUDONYM.search(text))
                or may_list(kind)
                or PERCENT.search(text)
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
    """What known names look like as kinds: ten thousand hosts are a few."""
    return tuple(sorted({_decoded(_kind(b"\n" + _encoded(name))[1:]) for name in names}))


def _kind(data: bytes) -> bytes:
    """As long as the data itself."""
    return _POINTER.sub(lambda found: b"x" + b"0" * (len(found[0]) - 1), data.translate(_ZEROS))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
