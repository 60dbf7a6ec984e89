"""The case: evidence, verdict and source, redacted; a single fact of it; a question that it cannot answer; and names of its ranks, groups,
files and lines, as facts show them to a model and as a model writes them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.evidence import Choice, read
from forkpoint.model.capture import SetAside
from forkpoint.model.incident import Incident
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import ProcessGroup, name_ranks
from forkpoint.pipeline import examine
from forkpoint.redact import Redactor
from forkpoint.report.escape import escape
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge import relative
from forkpoint.source.bridge.fork import Fork
from forkpoint.source.code import Function, Module

# ---------------------------------------------------------------------------------------------------------------------
# Files are named relative to the given folders, so that the model does not see where the case is stored.


def name_inside(paths: Sequence[str]) -> Callable[[str], str]:
    """A function that removes the given folders from paths in a text. With several folders, their last name stays."""
    folders = dict.fromkeys(path.rstrip("/") if Path(path).is_dir() else str(Path(path).parent) for path in paths)
    told = {
        folder: "" if len(folders) == 1 else f"{Path(folder).name}/" for folder in folders if folder not in {"", "."}
    }
    if not told:
        return str
    longest_first = sorted(told, key=len, reverse=True)
    given = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})/")
    return lambda text: given.sub(lambda match: told[match[1]], text)


# ---------------------------------------------------------------------------------------------------------------------
# One case: the evidence, verdict and source that tools and claims use.

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    paths: tuple[str, ...]
    """The paths given as evidence."""
    source: tuple[str, ...]
    """Folders or files that the program was read from."""
    incident: Incident
    verdict: Verdict
    analysis: Analysis | None
    """None if no source was given."""
    forks: tuple[Fork, ...]
    redactor: Redactor
    name_inside: Callable[[str], str]

    def clean(self, text: str) -> str:
        """Redacted and escaped. All text from evidence or source passes here before a model sees it."""
        return escape(self.redactor.redact(self.name_inside(text)))


def open_case(
    paths: Sequence[str], source: Sequence[str] = (), progress: Progress | None = None, use: Sequence[str] = ()
) -> Case:
    """Reads and judges, as `diagnose` does. `use`: files to judge although they would be set aside; each given as the path,
    as the name that tools show, or as the file name alone.
    """
    capture = read(paths, progress)
    if use:
        capture = read(paths, progress, Choice(use=_files_named(use, capture.set_aside, name_inside(paths))))
    found = examine(capture, source)
    return Case(
        paths=tuple(paths),
        source=tuple(source),
        incident=found.incident,
        verdict=found.verdict,
        analysis=found.analysis,
        forks=found.forks,
        redactor=Redactor.of(capture),
        name_inside=name_inside(paths),
    )


def _files_named(use: Sequence[str], aside: Sequence[SetAside], inside: Callable[[str], str]) -> frozenset[str]:
    found = {one.file for one in aside for name in use if name in {one.file, inside(one.file), Path(one.file).name}}
    if not found:
        there = ", ".join(inside(one.file) for one in aside[:8]) or "none"
        raise UsageError(f"no file with these names was set aside; set aside: {there}")
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of evidence or source, redacted, without terminal control characters."""

    where: str
    """`log_rank_0.txt line 31`, `train.py:48`, `rank 2 default_pg seq 9`: what a reader opens to check."""
    says: str


class QuestionRefused(Exception):
    """The question cannot be answered as asked; the text says what is possible."""


# ---------------------------------------------------------------------------------------------------------------------
# A claim's fields as text. A model wrote them, so they are escaped, kept inside their quotes, and cut.

_LONGEST_NAME = 80
_LARGEST = 10**12
"""Far above any real rank, line or seq."""


def named(text: str, longest: int = _LONGEST_NAME) -> str:
    """In backquotes; backquotes inside are replaced."""
    shown = escape(text[:longest]).replace("`", "'")
    return f"`{shown[:longest]}...`" if len(shown) > longest or len(text) > longest else f"`{shown}`"


def number(value: int) -> str:
    return str(value) if is_plain(value) else "(an invalid number)"


def told_ranks(ranks: Sequence[int]) -> str:
    plain = {rank for rank in ranks if is_plain(rank)}
    if not plain:
        return "no valid rank"
    return name_ranks(plain) if len(plain) == len(set(ranks)) else f"{name_ranks(plain)} and invalid ones"


def is_plain(value: int) -> bool:
    """Not negative, and not absurdly large."""
    return 0 <= value < _LARGEST


# ---------------------------------------------------------------------------------------------------------------------
# How tools answer: with a limited number of clean, short facts.

MAX_FACTS = 200
MAX_CHARACTERS = 300
_MAX_NAMED = 12
_MAX_NAME = 200
_CUT = "…"


def fact(case: Case, where: str, says: str) -> Fact:
    """Cleaned before it is cut: half a secret would not be recognised."""
    return Fact(_short(case.clean(where)), _short(case.clean(says)))


def answer(facts: Iterable[Fact], narrow: str, nothing: str = "") -> tuple[Fact, ...]:
    """As many as fit. `narrow`: how to ask for less, shown if facts were left out. `nothing`: why there is no fact, if that is an
    error.
    """
    shown = tuple(islice(facts, MAX_FACTS + 1))
    if nothing and not shown:
        raise QuestionRefused(nothing)
    if len(shown) <= MAX_FACTS:
        return shown
    return (*shown[: MAX_FACTS - 1], Fact("left out", f"more than {MAX_FACTS - 1} facts; {narrow}"))


_NAME = re.compile(r"[^\s\x00-\x1f\"`|]{1,200}")


def plain_name(text: str) -> str:
    """A name from the evidence: as it is if it is one word, else between quotes and cut, so that it reads as data."""
    return text if _NAME.fullmatch(text) else '"' + text[:_LONGEST_NAME].replace('"', "'").replace("|", "/") + '"'


def shortened(case: Case, text: str, most: int) -> str:
    """Cleaned before it is cut: half a secret would not be recognised."""
    clean = case.clean(text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}{_CUT}"


def paragraphs(text: str) -> list[str]:
    """Splits a long text between words into pieces that fit a fact."""
    pieces = [""]
    for word in text.split():
        if len(pieces[-1]) + len(word) >= MAX_CHARACTERS:
            pieces.append("")
        pieces[-1] = f"{pieces[-1]} {word}".strip()
    return [piece for piece in pieces if piece]


def lines_around(asked: int | None, usual: int, most: int) -> int:
    """How many lines, slots or messages to show before and after."""
    return min(max(usual if asked is None else asked, 0), most)


def known_rank(case: Case, rank: int) -> int:
    world = case.incident.timeline.world
    if rank not in world:
        there = f"ranks are 0 to {world[-1]}" if world else "the evidence names no ranks"
        raise QuestionRefused(f"there is no rank {rank} in this case: {there}")
    return rank


def names(known: Sequence[str]) -> str:
    """The first few known names, for a refusal."""
    more = f" and {len(known) - _MAX_NAMED} more" if len(known) > _MAX_NAMED else ""
    return ", ".join(name[:_MAX_NAME] for name in known[:_MAX_NAMED]) + more if known else "none"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + _CUT


# ---------------------------------------------------------------------------------------------------------------------
# Process groups as a model names them and as facts name them.

_RANGES = 4


def name_group(group: ProcessGroup, timeline: Timeline) -> str:
    """`default_pg`; if several groups have this name, also the internal name and the ranks."""
    return _told_apart(group, sum(str(g.group) == str(group) for g in timeline.groups))


def matching_groups(case: Case, named: str) -> tuple[GroupTimeline, ...]:
    """Groups with this name, as facts show it, as its internal name or as its description. May be several."""
    groups = case.incident.timeline.groups
    for spelled in (_spelled(case), [g.group.name for g in groups], [g.group.desc for g in groups]):
        found = tuple(group for group, name in zip(groups, spelled, strict=True) if name == named)
        if found:
            return found
    return ()


def find_group(case: Case, named: str) -> GroupTimeline:
    """The one group with this name. Raises Refused."""
    found = matching_groups(case, named)
    if len(found) == 1:
        return found[0]
    if found:
        members = [case.clean(_told_apart(g.group, len(found))) for g in found]
        raise QuestionRefused(f"several groups have this name: {names(members)}")
    spelled = _spelled(case)
    if not spelled:
        raise QuestionRefused("no dump of this case has groups; ask log_lines for what the logs say")
    raise QuestionRefused(f"there is no such group; there are {names(spelled)}")


def known_seq(group: GroupTimeline, seq: int) -> range:
    """The seqs that some member recorded. Allows one more: the next slot, which nobody has reached."""
    held = [track for _, rank in group.kinds if (track := group.track(rank))]
    if not held:
        raise QuestionRefused("no rank recorded a call of this group; ask progress")
    first, last = min(t.first_seq for t in held), max(t.last_seq for t in held)
    if not first <= seq <= last + 1:
        raise QuestionRefused(f"this group has recorded seq {first} to {last}")
    return range(first, last + 1)


def _spelled(case: Case) -> list[str]:
    """The names of all groups as facts show them."""
    groups = [g.group for g in case.incident.timeline.groups]
    counts = Counter(map(str, groups))
    return [case.clean(_told_apart(group, counts[str(group)])) for group in groups]


def _told_apart(group: ProcessGroup, alike: int) -> str:
    name = plain_name(str(group))
    return name if alike < 2 else f"{name} (name {plain_name(group.name)}, {name_ranks(group.ranks, _RANGES)})"


# ---------------------------------------------------------------------------------------------------------------------
# Names of source files and functions. Nothing is opened here: only modules that were already read exist.

_LONGEST_PATH = 1000
"""Characters of a path that are compared."""


def analysis_of(case: Case) -> Analysis:
    if case.analysis is None:
        raise QuestionRefused("no source was given with this case")
    return case.analysis


def name_module(case: Case, module: Module) -> str:
    """Its path relative to the source root."""
    return relative(module.path, case.source)


def find_module(case: Case, file: str) -> Module:
    """The module shown under this name, or the only one whose path ends with it. Raises Refused."""
    analysis = analysis_of(case)
    known = {case.clean(name_module(case, m)): m for m in analysis.program.modules.values()}
    if file in known:
        return known[file]
    ending = [module for shown, module in known.items() if file and shown.endswith(f"/{file}")]
    if len(ending) == 1:
        return ending[0]
    near = get_close_matches(file[:_LONGEST_PATH], known, n=5, cutoff=0.5)
    raise QuestionRefused(f"no such file was read; there are {names(near or sorted(known))}")


def line_of(module: Module, line: int) -> str:
    """As written; empty if there is no such line."""
    return module.lines[line - 1].decode("utf-8", "replace").rstrip("\r\n") if 0 < line <= len(module.lines) else ""


def function_of(case: Case, module: Module, line: int) -> Function:
    found = module.function_at(line) if line > 0 else None
    if found is None:
        raise QuestionRefused(f"{case.clean(name_module(case, module))} has {len(module.lines)} lines")
    return found


def place(case: Case, function: Function, line: int) -> str:
    return f"{name_module(case, function.module)}:{line}"
