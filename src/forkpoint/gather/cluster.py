"""Nodes summarise their own dumps, and one summary comes back: 1 to 2 kB per rank are transferred, the dumps stay.

A node that does not answer is a problem in the summary, and the others continue. The few full dumps that a verdict is
based on are fetched afterwards.
"""

import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from forkpoint.errors import ForkpointError, InputError, UnreadableInput
from forkpoint.evidence import Progress
from forkpoint.evidence.reading import Reading
from forkpoint.evidence.summary_file import add_summary, merge, summarise, write_summary
from forkpoint.evidence.text import clean
from forkpoint.gather.engines import Answers, Engine, Merged, NodeAnswer
from forkpoint.gather.tools import CallFailed
from forkpoint.model.capture import Capture, Problem
from forkpoint.model.records import TraceRecord
from forkpoint.model.verdict import Verdict
from forkpoint.traces.dump import MAX_BYTES

# ---------------------------------------------------------------------------------------------------------------------
# Runs on a node, for engines that run Python there.


def summarise_here(paths: Sequence[str], node: str) -> NodeAnswer:
    """The summary of this node's files; their names get the node as prefix."""
    began = time.monotonic()
    try:
        summary, problem = summarise([str(Path(path).expanduser()) for path in paths], node), None
    except ForkpointError as error:
        summary, problem = None, str(error)
    return NodeAnswer(node, summary, problem, time.monotonic() - began)


def read_here(path: str) -> bytes | CallFailed:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return CallFailed(f"cannot be read ({error.strerror})")
    return CallFailed("is larger than a dump may be") if len(data) > MAX_BYTES else data


# ---------------------------------------------------------------------------------------------------------------------
# Merges summaries on the nodes that have them, in a tree, so that few of them are transferred.

FAN_IN = 16
"""Summaries merged at once. 12,500 nodes are four levels."""


class Holders(Protocol):
    """Nodes that keep a summary until it is taken."""

    def merge(self, groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        """In each group the first node merges what all of them keep, and keeps the result. Returns whether it did."""
        ...

    def take(self, nodes: Sequence[str]) -> Sequence[bytes | CallFailed]:
        """What each of them keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    merged: tuple[Merged, ...]
    lost: dict[str, str]
    """Nodes whose summary is in none of them, and why."""


def take_merged(nodes: Iterable[str], holders: Holders) -> Taken:
    """Takes what all nodes keep. If a node is lost meanwhile, at most its own summary is lost."""
    held: dict[str, tuple[str, ...]] = {node: (node,) for node in nodes}
    alone: dict[str, tuple[str, ...]] = {}
    while len(held) > FAN_IN:
        listed = list(held)
        groups = [listed[at : at + FAN_IN] for at in range(0, len(listed), FAN_IN)]
        level: dict[str, tuple[str, ...]] = {}
        for group, done in zip(groups, holders.merge(groups), strict=True):
            if done:
                level[group[0]] = tuple(node for holder in group for node in held[holder])
            else:
                alone |= {holder: held[holder] for holder in group}
        held = level
    return _take({**held, **alone}, holders)


def _take(held: dict[str, tuple[str, ...]], holders: Holders) -> Taken:
    merged: list[Merged] = []
    lost: dict[str, str] = {}
    orphans: list[str] = []
    for (holder, nodes), got in zip(held.items(), holders.take(list(held)), strict=True):
        if isinstance(got, bytes):
            merged.append(Merged(nodes, got))
        else:
            lost[holder] = got.why
            orphans += (node for node in nodes if node != holder)
    for node, got in zip(orphans, holders.take(orphans), strict=True):
        if isinstance(got, bytes):
            merged.append(Merged((node,), got))
        else:
            lost[node] = got.why
    return Taken(tuple(merged), lost)


def summarise_on(
    nodes: Sequence[str], answers: Iterable[NodeAnswer], holders: Holders, progress: Progress | None
) -> Answers:
    """All nodes' answers, as they come, and then the summaries that the nodes keep."""
    known: dict[str, NodeAnswer] = {}
    for answer in answers:
        known[answer.node] = answer
        if progress:
            progress(len(known), len(nodes), answer.node)
    taken = take_merged([node for node, answer in known.items() if answer.problem is None], holders)
    known |= {node: replace(known[node], problem=problem) for node, problem in taken.lost.items()}
    return Answers(tuple(known[node] for node in nodes), taken.merged)


# ---------------------------------------------------------------------------------------------------------------------
# Merges all nodes' answers into one summary, which lists missing nodes as problems.


_NAMED = 8
_LONGEST_PROBLEM = 600
"""The reason and the next step, then the tool's own output."""


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    summary: bytes
    nodes: tuple[NodeAnswer, ...]
    """Without their summaries, which are merged above."""
    missing: str | None = None
    """Why there may have been more nodes."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return _problems(self.nodes, self.missing)


def gather(engine: Engine, paths: Sequence[str], progress: Progress | None = None) -> ClusterSummary:
    """Some nodes may fail. Raises UnreadableInput if all do."""
    answers = engine.summarise(paths, progress)
    try:
        return _joined(answers, paths)
    except InputError:
        return _joined(_without_damaged(answers), paths)


def _joined(answers: Answers, paths: Sequence[str]) -> ClusterSummary:
    parts = [merged.summary for merged in answers.merged]
    parts += [answer.summary for answer in answers.nodes if answer.summary is not None]
    problems = _problems(answers.nodes, answers.missing)
    if not parts:
        raise UnreadableInput(f"no node has anything to diagnose in {', '.join(paths)}:", _told(problems))
    if problems:
        parts.append(write_summary(Reading(problems=list(problems))))
    nodes = tuple(replace(answer, summary=None) for answer in answers.nodes)
    return ClusterSummary(merge(parts), nodes, answers.missing)


def _told(problems: Sequence[Problem]) -> list[str]:
    more = [f"and {len(problems) - _NAMED} more nodes"] if len(problems) > _NAMED else []
    return [*(f"{problem.file}: {problem.text}" for problem in problems[:_NAMED]), *more] or ["there are no nodes"]


def _without_damaged(answers: Answers) -> Answers:
    """Checks each summary by itself: one that cannot be read becomes a problem of its nodes."""
    wrong: dict[str, str] = {}
    good: list[Merged] = []
    for merged in answers.merged:
        if damage := _damage(merged.summary):
            wrong |= dict.fromkeys(merged.nodes, damage)
        else:
            good.append(merged)
    for answer in answers.nodes:
        if answer.summary is not None and (damage := _damage(answer.summary)):
            wrong[answer.node] = damage
    nodes = (replace(a, summary=None, problem=wrong[a.node]) if a.node in wrong else a for a in answers.nodes)
    return Answers(tuple(nodes), tuple(good), answers.missing)


def _damage(summary: bytes) -> str | None:
    try:
        merge([summary])
    except InputError as error:
        return f"did not answer with a summary ({error}): is another version of forkpoint there?"
    return None


def _problems(nodes: Iterable[NodeAnswer], missing: str | None) -> tuple[Problem, ...]:
    told = [Problem(answer.node, clean(answer.problem, _LONGEST_PROBLEM)) for answer in nodes if answer.problem]
    return (*told, *([Problem("nodes", missing)] if missing else []))


# ---------------------------------------------------------------------------------------------------------------------
# The few full dumps that a verdict is based on, fetched from their nodes for a closer look.

AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Representative:
    rank: int
    file: str
    """NODE:PATH."""
    kept: str | None
    """The copy, if there is one."""
    problem: str | None
    """Why there is none."""


def choose_ranks(verdict: Verdict) -> tuple[int, ...]:
    """Suspects first, then the lowest rank of each cohort without a suspect."""
    chosen = list(verdict.suspects[:AT_MOST])
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    firsts = [min(cohort.ranks) for cohort in cohorts if cohort.ranks and not set(cohort.ranks) & set(chosen)]
    return tuple(dict.fromkeys([*chosen, *sorted(firsts)]))[:AT_MOST]


def records_of(summary: bytes, capture: Capture) -> dict[int, TraceRecord]:
    """The summary's record of each rank, of the dump that was diagnosed: there may be older ones."""
    reading = Reading()
    add_summary(io.BytesIO(summary), "summary", reading)
    used = {(trace.rank, trace.file) for trace in capture.traces}
    return {record.rank: record for record in reading.records if (record.rank, record.file) in used}


def fetch_representatives(
    verdict: Verdict, records: dict[int, TraceRecord], engine: Engine, nodes: Iterable[str], folder: Path
) -> tuple[Representative, ...]:
    """Fetches them into the folder and checks each against its summary: a dump that differs is not kept."""
    known = tuple(nodes)
    ranks = [rank for rank in choose_ranks(verdict) if rank in records]
    return tuple(_fetch(records[rank], engine, known, folder) for rank in ranks)


def with_representatives(verdict: Verdict, fetched: Iterable[Representative]) -> Verdict:
    """Adds notes to the coverage on which dumps are here and which are not."""
    notes = tuple(
        f"the full dump of rank {one.rank} ({one.file}) is in {one.kept}"
        if one.kept
        else f"the full dump of rank {one.rank} ({one.file}) is not here: {one.problem}"
        for one in fetched
    )
    return replace(verdict, coverage=replace(verdict.coverage, notes=(*verdict.coverage.notes, *notes)))


def _fetch(record: TraceRecord, engine: Engine, nodes: tuple[str, ...], folder: Path) -> Representative:
    got = _read(record, engine, nodes)
    problem = got.why if isinstance(got, CallFailed) else _difference(record, got)
    if isinstance(got, CallFailed) or problem:
        return Representative(record.rank, record.file, None, clean(problem or ""))
    kept = folder / f"nccl_trace_rank_{record.rank}"
    kept.write_bytes(got)
    return Representative(record.rank, record.file, str(kept), None)


def _read(record: TraceRecord, engine: Engine, nodes: tuple[str, ...]) -> bytes | CallFailed:
    """The file name comes from a node, so it must be a path on one of the nodes that were asked."""
    node = next((node for node in nodes if record.file.startswith(f"{node}:/")), None)
    path = record.file.removeprefix(f"{node}:")
    if node is None or "\n" in path or "\0" in path:
        return CallFailed("its name is not a path of a node that was asked")
    return engine.read_file(node, path)


def _difference(record: TraceRecord, data: bytes) -> str | None:
    again = Reading()
    try:
        again.add_dump(record.file, data)
    except InputError as error:
        return str(error).removeprefix(f"{record.file}: ")
    if [(one.rank, one.data) for one in again.records] != [(record.rank, record.data)]:
        return "it has changed since it was summarised; was it written again?"
    return None
