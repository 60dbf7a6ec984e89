"""An answer beside the truth: where ranks parted first, who left, and which line let them."""

from dataclasses import dataclass, replace

from forkpoint.agent.case import Case
from forkpoint.agent.evaluation.known import Truth
from forkpoint.agent.hypothesis import Hypothesis
from forkpoint.agent.tools.groups import matching_groups
from forkpoint.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    groups: frozenset[str]
    """Names and descriptions of the group that is meant."""
    seq: int | None
    suspects: tuple[int, ...]
    site: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Marks:
    earliest: bool | None
    """The fork point is right. None: the truth does not say where it is."""
    suspects: bool
    """These ranks, all of them and no other."""
    precision: float
    """Share of true suspects among those that are named; 0 where one is missed."""
    site: bool | None
    """The line is right. None: the truth names no line."""


def answer_of_engine(verdict: Verdict) -> CaseAnswer:
    fork, site = verdict.divergence, next(iter(verdict.sites), None)
    return CaseAnswer(
        groups=frozenset({fork.group.name, fork.group.desc}) if fork else frozenset(),
        seq=fork.seq if fork else None,
        suspects=verdict.suspects,
        site=(site.file, site.line) if site else None,
    )


def answer_of_model(case: Case, told: Hypothesis) -> CaseAnswer:
    named = told.earliest_group or ""
    meant = [group.group for group in matching_groups(case, named)]
    file, line = told.site_file, told.site_line
    return CaseAnswer(
        groups=frozenset({named, *(name for group in meant for name in (group.name, group.desc))}),
        seq=told.earliest_seq,
        suspects=tuple(sorted(set(told.suspects))),
        site=(file, line) if file is not None and line is not None else None,
    )


def says_nothing(told: Hypothesis) -> bool:
    return not told.claims and not told.suspects and told.earliest_seq is None and told.site_line is None


def mark(truth: Truth, answer: CaseAnswer | None) -> Marks:
    """None: no answer was given, which is never a right one."""
    if answer is None:
        wrong = CaseAnswer(frozenset(), None, (), None)
        return replace(mark(truth, wrong), suspects=False, precision=0.0)
    return Marks(
        earliest=_is_earliest(truth, answer) if truth.seqs else None,
        suspects=answer.suspects in truth.suspects,
        precision=max(_precision(true, answer.suspects) for true in truth.suspects),
        site=_is_site(truth, answer) if truth.places else None,
    )


def _is_earliest(truth: Truth, answer: CaseAnswer) -> bool:
    return answer.seq in truth.seqs and (truth.group is None or truth.group in answer.groups)


def _precision(true: tuple[int, ...], named: tuple[int, ...]) -> float:
    if not named:
        return float(not true)
    return len(true) / len(named) if set(true) <= set(named) else 0.0


def _is_site(truth: Truth, answer: CaseAnswer) -> bool:
    if answer.site is None:
        return False
    file, line = answer.site
    return any(file == place.file and place.first <= line <= place.last for place in truth.places)
