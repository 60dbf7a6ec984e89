"""Kinds of lines in which all that is replaced stands in one place: `gpu-7:4000:4000 [0] NCCL INFO ...`.

Lines of a kind differ in digits alone, so the place is the same in all of them. If the rest of the kind is clean, a line is
known by the text in that place: the slow way gives the same answer for the same text.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix

_WORTH_LEARNING = 4
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
        self._mark_new({kind: told for kind, told in by_kind.items() if len(told) >= _WORTH_LEARNING})
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
    return len(commonprefix((one, two)))  # noqa: RUF071 - these are not paths
