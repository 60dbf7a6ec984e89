"""Merges all nodes' answers into one summary, which lists missing nodes as problems."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from forkpoint.cluster.engines import Answers, Engine, Merged, NodeAnswer
from forkpoint.errors import InputError, UnreadableInput
from forkpoint.ingest import Progress
from forkpoint.ingest.reading import Reading
from forkpoint.ingest.summary_file import merge, write_summary
from forkpoint.ingest.text import clean
from forkpoint.model.capture import Problem


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    summary: bytes
    nodes: tuple[NodeAnswer, ...]
    """Without their summaries, which are in the one of all."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return _problems(self.nodes)


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
    problems = _problems(answers.nodes)
    if not parts:
        told = "; ".join(f"{problem.file}: {problem.text}" for problem in problems[:3]) or "there are no nodes"
        raise UnreadableInput(f"no node has anything to diagnose in {', '.join(paths)}: {told}")
    if problems:
        parts.append(write_summary(Reading(problems=list(problems))))
    return ClusterSummary(merge(parts), tuple(replace(answer, summary=None) for answer in answers.nodes))


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
    return Answers(tuple(nodes), tuple(good))


def _damage(summary: bytes) -> str | None:
    try:
        merge([summary])
    except InputError as error:
        return f"did not answer with a summary ({error}): is another version of forkpoint there?"
    return None


def _problems(nodes: Iterable[NodeAnswer]) -> tuple[Problem, ...]:
    return tuple(Problem(answer.node, clean(answer.problem)) for answer in nodes if answer.problem)
