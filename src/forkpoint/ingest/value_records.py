"""Values that training code recorded (`forkpoint.replicas`), as JSON lines of which the first says what they are.

A line that cannot be used is left out and said: a file that was cut ends in one. Files of several jobs or of several
tries of one are not told apart by what they hold, so a rank that two different files speak for is heard from neither.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from forkpoint.ingest.forensics_file import read_forensics
from forkpoint.ingest.replicas_file import read_replicas
from forkpoint.ingest.value_lines import JsonLine, read_lines
from forkpoint.model.capture import Problem
from forkpoint.model.trace import RankTrace
from forkpoint.model.values import FORENSICS_SCHEMA, ForensicsLog, ReplicaLog, Values

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
    """Of one job, which is that of the dumps where there are any."""
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
    """Those that state the size that most state, and each rank once, by rank."""
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
            said = f"claims rank {rank}, and another file with other content does too; give the files of one run"
            problems += [Problem(log.file, said) for log in same]
            kept[rank] = []
    return tuple(min(kept[rank], key=lambda log: log.file) for rank in sorted(kept) if kept[rank]), problems


def _fits_together(log: ForensicsLog | ReplicaLog) -> bool:
    """What is read from lines does. A summary that somebody else wrote need not."""
    if isinstance(log, ForensicsLog):
        ordered = all(first.step < second.step for first, second in pairwise(log.steps))
        sizes = {size for s in log.steps for size in (len(s.norms), len(s.largest), len(s.nonfinite))}
        return ordered and sizes <= {len(log.groups)}
    return all(len(m.ranks) == len(set(m.ranks)) == len(m.checksums) > 1 for m in log.mismatches)


def _told(log: ForensicsLog | ReplicaLog) -> object:
    """What a copy of the file would contain as well."""
    return (log.groups, log.steps) if isinstance(log, ForensicsLog) else (log.equal, [m.told for m in log.mismatches])


def _more(lines: Sequence[int]) -> str:
    return f", and {len(lines) - 1} more" if len(lines) > 1 else ""
