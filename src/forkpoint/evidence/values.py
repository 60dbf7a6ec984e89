"""Reads values that training code recorded (`forkpoint.replicas`, `forensics`) from untrusted JSON lines, and joins them."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from msgspec import Struct

from forkpoint.evidence.text import clean
from forkpoint.model.capture import Problem
from forkpoint.model.trace import RankTrace
from forkpoint.model.values import (
    FORENSICS_SCHEMA,
    DesyncKind,
    ForensicsLog,
    ReplicaLog,
    ReportedMismatch,
    ReportedRecheck,
    StepValues,
    Trigger,
    Values,
)

# ---------------------------------------------------------------------------------------------------------------------
# Untrusted JSON lines: sizes and types are checked; a value that does not fit becomes None.

MAX_RANKS: Final = 1 << 20
_MAX_LINE: Final = 1 << 20
_MAX_NUMBER: Final = 1 << 53
_WORDS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""JSON has no numbers for them."""


class JsonLine(Struct, frozen=True):
    number: int
    told: Mapping[str, object]
    """The JSON object; empty if the line is not one."""


def read_lines(text: str) -> Iterator[JsonLine]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield JsonLine(number, _object(line))


def whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_NUMBER else None


def real(value: object) -> float | None:
    """Also NaN and infinity."""
    if isinstance(value, str):
        return _WORDS.get(value)
    if type(value) is float or (type(value) is int and abs(value) < _MAX_NUMBER):
        return float(value)
    return None


def reals(value: object, count: int) -> tuple[float, ...] | None:
    """None unless there are exactly `count` numbers."""
    found = [real(item) for item in items(value, count + 1)]
    return tuple(item for item in found if item is not None) if len(found) == count and None not in found else None


def wholes(value: object, limit: int) -> tuple[int, ...]:
    return tuple(number for item in items(value, limit) if (number := whole(item)) is not None)


def words(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""


def items(value: object, limit: int) -> list[object]:
    return list(value[:limit]) if isinstance(value, list) else []


def pairs(value: object, limit: int) -> Mapping[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) and len(value) <= limit else {}


def world_size(told: Mapping[str, object]) -> int | None:
    size = whole(told.get("world"))
    return size if size and size <= MAX_RANKS else None


def _object(line: str) -> Mapping[str, object]:
    try:
        raw: object = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        return {}
    return pairs(raw, _MAX_LINE)


# ---------------------------------------------------------------------------------------------------------------------
# `forensics_rank_N.jsonl`: the loss and the gradients of a rank before reduction. docs/forensics.md has the format.
#
# A restarted process appends to its file: only its last run is kept, since steps are numbered from its start.

_MAX_GROUPS: Final = 1 << 14
_MAX_INDICES: Final = 1024


def read_forensics(lines: Sequence[JsonLine], name: str, *, cut: bool) -> ForensicsLog | None:
    """None: the file does not say its rank."""
    heads = [place for place, line in enumerate(lines) if "schema" in line.told]
    head, run = lines[heads[-1]].told, lines[heads[-1] + 1 :]
    rank = whole(head.get("rank"))
    if rank is None:
        return None
    groups = tuple(words(group) for group in items(head.get("groups"), _MAX_GROUPS))
    steps: dict[int, StepValues] = {}
    for line in run:
        step = _read_step(line, len(groups))
        if step is not None:
            steps.setdefault(step.step, step)
    triggers = tuple(trigger for line in run if (trigger := _read_trigger(line)))
    return ForensicsLog(name, rank, world_size(head), groups, tuple(steps[s] for s in sorted(steps)), triggers, cut)


def _read_step(line: JsonLine, groups: int) -> StepValues | None:
    told = line.told
    step, norms, largest = whole(told.get("step")), reals(told.get("norm"), groups), reals(told.get("max"), groups)
    nonfinite = wholes(told.get("nonfinite"), groups)
    if "trigger" in told or step is None or norms is None or largest is None or len(nonfinite) != groups:
        return None
    loss = real(told.get("loss"))
    return StepValues(
        line=line.number,
        step=step,
        loss=_finite(loss),
        broken_loss=loss is not None and not math.isfinite(loss),
        norms=tuple(map(_finite, norms)),
        largest=tuple(map(_finite, largest)),
        nonfinite=nonfinite,
        first_nonfinite=words(told.get("first_nonfinite")) or None,
        data=wholes(told.get("data"), _MAX_INDICES),
        data_is_whole="data_left_out" not in told and len(items(told.get("data"), _MAX_INDICES + 1)) <= _MAX_INDICES,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _read_trigger(line: JsonLine) -> Trigger | None:
    step, says = whole(line.told.get("step")), words(line.told.get("trigger"))
    if step is None or not says:
        return None
    return Trigger(line.number, step, says, words(line.told.get("tensor")) or None)


# ---------------------------------------------------------------------------------------------------------------------
# `replicas_rank_N.jsonl`: checks of values that must be equal on several ranks. docs/replicas.md has the format.
#
# A restarted process appends to its file: only its last run is kept, since steps are numbered from its start.

_MAX_SUM: Final = 64
_KINDS: Final = {kind.value: kind for kind in DesyncKind}


def read_replicas(lines: Sequence[JsonLine], name: str, *, cut: bool) -> ReplicaLog | None:
    """None: the file does not say its rank."""
    starts = [place for place, line in enumerate(lines) if line.told.get("record") == "start"]
    rank = whole(lines[starts[-1]].told.get("rank")) if starts else None
    if rank is None:
        return None
    run = lines[starts[-1] + 1 :]
    equal = {step: line.number for line in reversed(run) if (step := _equal_step(line)) is not None}
    return ReplicaLog(
        file=name,
        rank=rank,
        world=world_size(lines[starts[-1]].told),
        equal=tuple(sorted(equal.items())),
        mismatches=tuple(found for line in run if (found := _read_mismatch(line, name, rank))),
        rechecks=tuple(found for line in run if (found := _read_recheck(line, name, rank))),
        cut=cut,
    )


def _equal_step(line: JsonLine) -> int | None:
    return whole(line.told.get("step")) if line.told.get("record") == "equal" else None


def _read_mismatch(line: JsonLine, name: str, rank: int) -> ReportedMismatch | None:
    told = line.told
    step, ranks = whole(told.get("step")), wholes(told.get("ranks"), MAX_RANKS)
    sums = pairs(told.get("checksums"), MAX_RANKS)
    each = tuple(words(sums.get(str(member)))[:_MAX_SUM] for member in ranks)
    if told.get("record") != "mismatch" or step is None or len(set(ranks)) != len(ranks) or len(set(each)) < 2:
        return None
    what = " ".join(word for word in (words(told.get("what")), words(told.get("tensor"))) if word)
    kind = _KINDS.get(words(told.get("kind")), DesyncKind.UNDECIDED)
    return ReportedMismatch(name, line.number, rank, step, what, ranks, each, kind, words(told.get("why")))


def _read_recheck(line: JsonLine, name: str, rank: int) -> ReportedRecheck | None:
    told = line.told
    result = words(told.get("result"))
    if told.get("record") != "recheck" or not result:
        return None
    return ReportedRecheck(name, line.number, rank, result, whole(told.get("deviates")), words(told.get("why")))


# ---------------------------------------------------------------------------------------------------------------------
# Files of either kind: the first line states the schema.
#
# Unusable lines are skipped and reported: a truncated file ends with one. Nothing in the files distinguishes several jobs or
# several attempts, so if two different files claim the same rank, both are left out.

_HEAD: Final = re.compile(r'\s{0,8}\{\s{0,8}"schema":\s{0,8}"forkpoint\.(?:forensics|replicas)/1"')
_NOBODY: Final = "does not say which rank wrote it; left out"

Log = TypeVar("Log", ForensicsLog, ReplicaLog)


def looks_like_values(head: str) -> bool:
    return _HEAD.match(head) is not None


def read_values(text: str, name: str) -> tuple[Values, tuple[Problem, ...]]:
    lines = list(read_lines(text))
    usable = [line for line in lines if line.told]
    cut = [line.number for line in lines if not line.told]
    problems = [Problem(name, f"line {cut[0]} is not JSON{_more(cut)}; is the file truncated?")] if cut else []
    if not usable or "schema" not in usable[0].told:  # the first line was cut
        return Values(), (*problems, Problem(name, _NOBODY))
    values = _read_kind(usable, name, cut=bool(cut))
    return values, (*problems, *(() if values else (Problem(name, _NOBODY),)))


def join_values(parts: Sequence[Values], traces: Iterable[RankTrace]) -> tuple[Values, tuple[Problem, ...]]:
    """The values of one job: the job of the dumps, if there are any."""
    if not parts:
        return Values(), ()
    world = next((len(trace.world) for trace in traces if trace.world), None)
    forensics, others = _of_one_job([log for part in parts for log in part.forensics], world)
    replicas, more = _of_one_job([log for part in parts for log in part.replicas], world)
    return Values(forensics, replicas), (*others, *more)


def _read_kind(lines: Sequence[JsonLine], name: str, *, cut: bool) -> Values:
    if lines[0].told["schema"] == FORENSICS_SCHEMA:
        forensics = read_forensics(lines, name, cut=cut)
        return Values(forensics=(forensics,)) if forensics else Values()
    replicas = read_replicas(lines, name, cut=cut)
    return Values(replicas=(replicas,)) if replicas else Values()


def _of_one_job(logs: Sequence[Log], world: int | None) -> tuple[tuple[Log, ...], list[Problem]]:
    """The logs that state the most common world size, one per rank, sorted by rank."""
    sizes = Counter(log.world for log in logs).most_common(2)
    usual = world or (sizes[0][0] if sizes and (len(sizes) == 1 or sizes[0][1] > sizes[1][1]) else None)
    problems: list[Problem] = []
    kept: dict[int, list[Log]] = {}
    for log in logs:
        if not _fits_together(log):
            problems.append(Problem(log.file, "its records contradict each other; record it again"))
        elif log.world is not None and log.world == usual and log.rank < log.world:
            kept.setdefault(log.rank, []).append(log)
        else:
            of = f"a job of {log.world} ranks" if log.world else "a job of unknown size"
            problems.append(Problem(log.file, f"written by rank {log.rank} of {of}, unlike the rest; left out"))
    for rank, same in kept.items():
        if any(_told(log) != _told(same[0]) for log in same):
            text = f"claims rank {rank}, and so does another file with other content; give the files of one run"
            problems += [Problem(log.file, text) for log in same]
            kept[rank] = []
    return tuple(min(kept[rank], key=lambda log: log.file) for rank in sorted(kept) if kept[rank]), problems


def _fits_together(log: ForensicsLog | ReplicaLog) -> bool:
    """Checks the records against each other. Only a forged summary can fail this: reading lines ensures it."""
    if isinstance(log, ForensicsLog):
        ordered = all(first.step < second.step for first, second in pairwise(log.steps))
        sizes = {size for s in log.steps for size in (len(s.norms), len(s.largest), len(s.nonfinite))}
        return ordered and sizes <= {len(log.groups)}
    return all(len(m.ranks) == len(set(m.ranks)) == len(m.checksums) > 1 for m in log.mismatches)


def _told(log: ForensicsLog | ReplicaLog) -> object:
    """The content that a copy of the file would share."""
    return (log.groups, log.steps) if isinstance(log, ForensicsLog) else (log.equal, [m.told for m in log.mismatches])


def _more(lines: Sequence[int]) -> str:
    return f", and {len(lines) - 1} more" if len(lines) > 1 else ""
