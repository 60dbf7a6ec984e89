"""Compares what ranks printed: the one rank that printed another value, or a line of its own, where all others agree.

    resumed from trainer_state.json (consumed samples: 160)     seven ranks
    resumed from trainer_state.json (consumed samples: 120)     one rank

This is what a person sees who puts the logs side by side. It shows that a rank differs, not that this stopped the job: it
can decide between ranks that recorded calls or stacks leave open, and names nobody by itself.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from msgspec import Struct

from forkpoint.judge.facts.blame import blames_peers
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogKind, PrintedLine
from forkpoint.model.verdict import Evidence
from forkpoint.model.world import name_ranks

_OF_A_ROLE = 3
"""A line that only one rank prints, and prints this often, belongs to the rank's role, such as the loss of the last
stage.
"""
_MOMENTS = 400
_MAIN = 0
"""The rank that prints for all: a line that only it prints means nothing."""

_PLACE_OR_TIME = re.compile(
    r"\d{1,4}[-/]\d\d[-/]\d{1,4}[T _]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?|0x[0-9a-f]+|\b[0-9a-f]{12,}\b",
    re.IGNORECASE,
)
_MEASURED = re.compile(
    r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)? ?(?:ms|us|ns|s|sec|seconds|min|it/s|s/it|samples/s|tok(?:ens)?/s|%|[KMG]i?B|MB/s|GB/s|tflops?)\b",
    re.IGNORECASE,
)
"""Durations, rates and memory differ by chance."""
_COORDINATE = re.compile(
    r"(?:rank|node|host|stage|cuda|gpu|device|pid|process|port|worker|member|replica|shard|seed|(?<![a-z])(?:[dtpec]p|of))[ _:=#-]{0,2}$",
    re.IGNORECASE,
)
"""Words before a number that identifies a rank: such numbers are meant to differ."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])|\bnan\b|[-+]?\binf\b", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_OF_AN_ERROR = re.compile(
    r"^[\w.]*(?:Error|Exception|Interrupt)\b|[Tt]imed out|[Cc]onnection (?:closed|reset)|\bSIG[A-Z]{3,}"
)
"""Errors, and what launchers report about signals: other modules read them."""
_REPORTS = re.compile(r"fail|error|exception|abort|crash|lost|died", re.IGNORECASE)
"""`logging.exception` prints its message in the line before the traceback."""


class Contrast(Struct, frozen=True):
    ranks: tuple[int, ...]
    """Fewer than half."""
    own: str
    """What they printed."""
    usual: str | None
    """What the others printed instead; None if nothing."""
    evidence: tuple[Evidence, ...]

    @property
    def told(self) -> str:
        who = f"only {name_ranks(self.ranks)} printed"
        return f'{who} "{self.own}"' + (f', the others "{self.usual}"' if self.usual else "")


class _Said(Struct, frozen=True):
    rank: int
    values: tuple[str, ...]
    file: str
    line: PrintedLine


_Lines = dict[int, list[_Said]]
"""Lines of one form, by rank, in order."""


def find_contrast(sides: Iterable[tuple[int, ...]], incident: Incident) -> Contrast | None:
    """What only the ranks of exactly one of these sides printed. None if several sets of ranks printed lines of their
    own: that is normal for this program.
    """
    found = find_contrasts(incident)
    wanted = [side for side in dict.fromkeys(sides) if any(one.ranks == side for one in found)]
    if len(wanted) != 1 or (found[0].usual is None and len({one.ranks for one in found}) > 1):
        return None
    return next(one for one in found if one.ranks == wanted[0])


def find_lone_contrast(incident: Incident) -> Contrast | None:
    """The contrast of the only rank that differs from all others."""
    return find_contrast(((rank,) for rank in incident.timeline.world), incident)


@fact
def find_contrasts(incident: Incident) -> tuple[Contrast, ...]:
    """Empty if a rank has no log, or a log is truncated. A differing value says more than a line of a single rank,
    which may be its role.
    """
    forms = _read_forms(incident)
    ranks = {rank for told in forms.values() for rank in told}
    world = set(incident.timeline.world) or ranks
    return () if incident.timeline.unseen > 1 else _contrasts(forms, ranks, world, _MAIN, incident)


def find_contrast_among(members: tuple[int, ...], incident: Incident) -> Contrast | None:
    """The contrast of the only one of these ranks that differs from the others of them; None if one of them has no log."""
    forms = {
        form: {rank: said for rank, said in told.items() if rank in members}
        for form, told in _read_forms(incident).items()
    }
    forms = {form: told for form, told in forms.items() if told}
    ranks = {rank for told in forms.values() for rank in told}
    found = _contrasts(forms, ranks, set(members), min(members), incident)
    alone = {one.ranks for one in found}
    return found[0] if len(alone) == 1 and len(found[0].ranks) == 1 else None


def _contrasts(
    forms: Mapping[str, _Lines], ranks: set[int], wanted: set[int], main: int, incident: Incident
) -> tuple[Contrast, ...]:
    if not ranks >= wanted or incident.capture.cut_logs:
        return ()
    return tuple(_odd_values(forms, ranks)) or tuple(_own_lines(forms, ranks, main))


def _read_forms(incident: Incident) -> dict[str, _Lines]:
    """Lines up to each rank's first line that blames its peers: later lines are consequences."""
    ends: dict[tuple[str, int | None], int] = {}
    for event in incident.capture.events:
        if blames_peers(event) or event.kind is LogKind.SIZES_DIFFER:
            ends[event.file, event.rank] = min(event.line, ends.get((event.file, event.rank), event.line))
    forms: dict[str, _Lines] = defaultdict(lambda: defaultdict(list))
    for file, rank, line in find_printed(incident):
        left = ends.get((file, rank), line.line + 2) - line.line
        followed = left <= 0 or (left == 1 and _REPORTS.search(line.text) is not None)
        if not followed and not _OF_AN_ERROR.search(line.text):
            form, values = split_line(line.text)
            forms[form][rank].append(_Said(rank, values, file, line))
    return forms


@fact
def find_printed(incident: Incident) -> tuple[tuple[str, int, PrintedLine], ...]:
    """(file, rank, line) of all lines whose rank is known, by their prefix or because the log has one owner."""
    owners: dict[str, set[int | None]] = defaultdict(set)
    for file, rank in incident.capture.logs:
        owners[file].add(rank)
    alone = {file: next(iter(ranks)) for file, ranks in owners.items() if len(ranks) == 1}
    return tuple(
        (file, rank, line)
        for file, lines in sorted(incident.capture.printed.items())
        for line in lines
        if (rank := alone.get(file) if line.rank is None else line.rank) is not None
    )


@fact
def find_lines(incident: Incident) -> dict[int, list[Evidence]]:
    """By rank, in order: the kept lines that its program printed."""
    found: dict[int, list[Evidence]] = defaultdict(list)
    for file, rank, line in find_printed(incident):
        found[rank].append(Evidence(file, rank, f"line {line.line}", line.text))
    return found


def without_times(text: str) -> str:
    """What was printed, without times, for use in a sentence."""
    return _PLACE_OR_TIME.sub("", text).replace("[]", "").strip(" ,|-")


def split_line(text: str) -> tuple[str, tuple[str, ...]]:
    """The form of a line, and its numbers, except those that identify the rank or are times and rates."""
    bare = _MEASURED.sub("~", _PLACE_OR_TIME.sub("~", text))
    values = [
        n[0].lower() for n in _NUMBER.finditer(bare) if not _COORDINATE.search(bare[max(0, n.start() - 16) : n.start()])
    ]
    return _DIGITS.sub("#", _NUMBER.sub("#", bare)), tuple(values)


def _odd_values(forms: Mapping[str, _Lines], ranks: set[int]) -> Iterator[Contrast]:
    """Numbers in which the same few ranks differ from all others whenever ranks differ at all."""
    for told in forms.values():
        widths = {len(one.values) for said in told.values() for one in said}
        if told.keys() != ranks or len(widths) != 1:
            continue
        moments = list(_moments(told))
        for column in range(widths.pop()):
            odd = [(_few({r: one.values[column] for r, one in now.items()}), now) for now in moments]
            differing = [(few, now) for few, now in odd if few is not None]
            if len({few for few, _ in differing}) == 1 and differing[0][0]:
                few, now = differing[0]
                yield _contrast(few, now[few[0]], next(one for r, one in sorted(now.items()) if r not in few))


def _moments(told: _Lines) -> Iterator[dict[int, _Said]]:
    """Lines of all ranks that belong together: those of one step if a number rises on every rank, else the n-th of
    each.
    """
    width = len(next(iter(told.values()))[0].values)
    step = next((c for c in range(width) if all(_rises(c, said) for said in told.values())), None)
    if step is not None:
        at = {rank: {one.values[step]: one for one in said} for rank, said in told.items()}
        shared = set.intersection(*(set(lines) for lines in at.values()))
        first = next(iter(at.values()))
        yield from ({rank: lines[key] for rank, lines in at.items()} for key in list(first)[:_MOMENTS] if key in shared)
    elif len({len(said) for said in told.values()}) == 1:
        count = min(_MOMENTS, len(next(iter(told.values()))))
        yield from ({rank: said[n] for rank, said in told.items()} for n in range(count))


def _rises(column: int, said: list[_Said]) -> bool:
    numbers = [one.values[column] for one in said]
    return len(numbers) > 1 and all(n.isdigit() for n in numbers) and all(int(a) < int(b) for a, b in pairwise(numbers))


def _few(values: dict[int, str]) -> tuple[int, ...] | None:
    """Ranks with one value while most have another. Empty if there are more values, or no majority; None if all are
    equal.
    """
    counts = Counter(values.values())
    if len(counts) == 1:
        return None
    rare, times = counts.most_common()[-1]
    return (
        tuple(sorted(r for r, v in values.items() if v == rare)) if len(counts) == 2 and 2 * times < len(values) else ()
    )


def _own_lines(forms: Mapping[str, _Lines], ranks: set[int], main: int) -> Iterator[Contrast]:
    """Lines of a form that only few ranks printed, unless that is normal for them."""
    last = {
        rank: max(said[-1].line.line for told in forms.values() for r, said in told.items() if r == rank)
        for rank in ranks
    }
    for told in forms.values():
        few = tuple(sorted(told))
        often = max(len(said) for said in told.values()) >= _OF_A_ROLE
        if 2 * len(few) < len(ranks) and not often and (few != (main,) or _is_last(told[main], last[main])):
            yield _contrast(few, told[few[0]][-1], None)


def _is_last(said: list[_Said], last: int) -> bool:
    """The main rank prints lines for all. A line says something about the rank itself only if it is its last and had
    not been printed before.
    """
    return len(said) == 1 and said[0].line.line == last


def _contrast(few: tuple[int, ...], own: _Said, usual: _Said | None) -> Contrast:
    cited = [Evidence(own.file, few[0], f"line {own.line.line}", own.line.text)]
    if usual is not None:
        cited.append(Evidence(usual.file, usual.rank, f"line {usual.line.line}", usual.line.text))
    return Contrast(few, own.line.text, usual.line.text if usual else None, tuple(cited))
