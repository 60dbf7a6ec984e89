"""What a model hands in at the end, how the engine checks each of its claims, and the verdict and the hypothesis side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from forkpoint.agent.case import ClaimCheck, ClaimStatus, Ledger, Wire
from forkpoint.agent.claims import AnyClaim, Issued, Missing, NothingFurther, SameValue
from forkpoint.agent.model import Usage
from forkpoint.brief.case import Case, is_plain, matching_groups, told_ranks
from forkpoint.judge.hypotheses.repairs import find_replay, is_excluded, recorded_job
from forkpoint.model.incident import Divergence, PartingKind
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.replay import Replay
from forkpoint.replay.job import tell_slots
from forkpoint.report.escape import escape

# ---------------------------------------------------------------------------------------------------------------------
# What a model hands in at the end, and the result of the checks.


class ModelHypothesis(Wire):
    """The model's own answer, shown beside the verdict: it may be another one."""

    cause: Annotated[Cause | None, Field(strict=False)] = None
    """Default: the verdict's."""
    suspects: list[int] = Field(default_factory=list)
    earliest_group: str | None = None
    earliest_seq: int | None = None
    site_file: str | None = None
    site_line: int | None = None
    claims: list[AnyClaim] = Field(default_factory=list)
    opinion: str = ""
    """What happened, in your words."""
    why: str = ""
    """Why that value, or that rank, differed."""
    refuted_by: str = ""
    """What would prove it wrong."""
    missing_evidence: str = ""
    """What would decide."""
    confidence: float = 0.5


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    claim: AnyClaim
    check: ClaimCheck

    @property
    def status(self) -> ClaimStatus:
        return self.check.status


@dataclass(frozen=True, slots=True)
class Remedy:
    """A probe or fix, shown beside the verdict's own."""

    kind: str
    """`probe` or `fix`."""
    title: str
    where: str | None
    patch: str
    trusted: bool
    """The engine made it. False: the model wrote it; we only checked that it applies and parses."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerSide:
    """One answer, with the checks for and against it."""

    says: str
    """`divergent-path of rank 3`."""
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    replayed: bool | None
    """Replay reproduces the recorded end of the job with this cause; None: it could not be replayed."""


@dataclass(frozen=True, slots=True)
class BothAnswers:
    """The verdict and the model's answer side by side."""

    verdict: AnswerSide
    model: AnswerSide | None
    """None: it gives the same answer as the verdict."""
    dissent: tuple[str, ...]
    """Sentences on where checked facts contradict the verdict, or favour the model's answer. Empty: nowhere."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is shown beside the verdict. Nothing in it was used to judge."""

    model: str
    hypothesis: ModelHypothesis | None
    """None: the model did not get that far."""
    claims: tuple[CheckedClaim, ...]
    comparison: BothAnswers | None
    """None if there is no hypothesis."""
    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]
    """Parts of the model's output that were refused, and why, one line each."""
    ended: str | None
    """Why it stopped early: a budget, a dead endpoint. None: it completed."""
    requests: int
    tool_calls: int
    usage: Usage


# ---------------------------------------------------------------------------------------------------------------------
# Checking the claims of a hypothesis.

MAX_CLAIMS = 40
_CITED = 5
_MAX_ID = 20


@dataclass(frozen=True, slots=True)
class Checked:
    claims: tuple[CheckedClaim, ...]
    refused: tuple[str, ...]
    """Claims that were not checked, and why."""


def check_claims(case: Case, ledger: Ledger, hypothesis: ModelHypothesis) -> Checked:
    """A claim that cites a fact that was never shown is refused unchecked: its evidence is made up."""
    known = frozenset(ledger.ids)
    claims: list[CheckedClaim] = []
    refused: list[str] = []
    for number, claim in enumerate(hypothesis.claims[:MAX_CLAIMS], start=1):
        never_shown = sorted(set(claim.evidence) - known)
        if never_shown:
            cited = ", ".join(escape(one[:_MAX_ID]) for one in never_shown[:_CITED])
            refused.append(f"claim {number} was not checked: it cites {cited}, which was never shown")
        else:
            claims.append(CheckedClaim(claim, claim.check(case)))
    if len(hypothesis.claims) > MAX_CLAIMS:
        refused.append(f"{len(hypothesis.claims) - MAX_CLAIMS} claims beyond the first {MAX_CLAIMS} were not checked")
    return Checked(tuple(claims), tuple(refused))


# ---------------------------------------------------------------------------------------------------------------------
# The verdict and a model's hypothesis side by side: the evidence for each, and checked facts that contradict the verdict.

_RANGES = 4
_UNDECIDED = (Cause.HEALTHY, Cause.INCONCLUSIVE)
_SHOWN = 6


def compare(case: Case, hypothesis: ModelHypothesis, claims: Sequence[CheckedClaim]) -> BothAnswers:
    verdict, model = _of_verdict(case, claims), _of_model(case, hypothesis, claims)
    return BothAnswers(verdict, model, tuple(_dissent(case, verdict, model)))


# ---------------------------------------------------------------------------------------------------------------------
# The verdict.


def _of_verdict(case: Case, claims: Sequence[CheckedClaim]) -> AnswerSide:
    verdict = case.verdict
    found = _replayed(verdict.cause, verdict.suspects, verdict.divergence, case)
    speaks_for = [f"{e.file} {e.where}: {e.says}" for e in verdict.evidence[:_SHOWN]]
    against = [*_refusals(found, case), *(why for c in claims if (why := _contradiction(c, verdict)))]
    if found is not None and found.explains:
        speaks_for.append("replay: with its repair the recorded job continues, and without it stops where it did")
    clean = tuple(map(case.clean, speaks_for)), tuple(map(case.clean, against))
    return AnswerSide(_told(verdict.cause, verdict.suspects), *clean, found.explains if found is not None else None)


def _contradiction(checked: CheckedClaim, verdict: Verdict) -> str | None:
    """What a supported claim shows against the verdict, if anything."""
    claim, fork = checked.claim, verdict.divergence
    if checked.status is not ClaimStatus.SUPPORTED or not verdict.suspects:
        return None
    if isinstance(claim, SameValue) and any((s.file, s.line) == (claim.file, claim.line) for s in verdict.sites):
        return f"the condition at its site, {claim.file}:{claim.line}, is the same on all ranks"
    if fork is None or fork.how is not PartingKind.ABSENCE or fork.channel is not None:
        return None
    waited_in = fork.hang_seq if fork.hang_seq is not None else fork.seq
    shared = _at_fork(claim, fork, waited_in)
    suspects = set(verdict.suspects) & shared
    one_too_many = bool(fork.sides) and set(verdict.suspects) == set(fork.sides[0])
    if isinstance(claim, Issued) and suspects and not one_too_many:
        return f"{name_ranks(suspects, _RANGES)}, which it says never made the call, issued the call in which the others wait"
    others = shared - set(verdict.suspects)
    if isinstance(claim, Missing | NothingFurther) and others and not one_too_many:
        return f"{name_ranks(others, _RANGES)}, which it does not suspect, did not make the call either"
    return None


def _at_fork(claim: AnyClaim, fork: Divergence, waited_in: int | None) -> set[int]:
    """Ranks that a claim names, if it is about the call in which ranks wait."""
    if not isinstance(claim, Issued | Missing | NothingFurther) or waited_in is None:
        return set()
    named = claim.group in {fork.group.name, fork.group.desc, str(fork.group)}
    there = {Issued: claim.seq >= waited_in, Missing: claim.seq == waited_in, NothingFurther: claim.seq < waited_in}[
        type(claim)
    ]
    return set(claim.ranks) & set(fork.group.ranks) if named and there else set()


def _replayed(cause: Cause, ranks: tuple[int, ...], divergence: Divergence | None, case: Case) -> Replay | None:
    found = None if cause in _UNDECIDED else find_replay(cause, ranks, divergence, case.incident)
    return found[1] if found is not None else None


def _refusals(found: Replay | None, case: Case) -> Iterator[str]:
    if found is None or found.explains:
        return
    finished = {slot for done in found.rounds for slot in done}
    left = [slot for slot in recorded_job(case.incident).slots if slot not in finished]
    if not found.goes_on:
        yield f"its repair would not have let the job go on: {tell_slots(left)} would still wait"
    elif not found.stops:
        yield "without its repair the replayed job does not stop where the recorded one did: other ranks are idle, too"


# ---------------------------------------------------------------------------------------------------------------------
# The model's answer.


def _of_model(case: Case, told: ModelHypothesis, claims: Sequence[CheckedClaim]) -> AnswerSide | None:
    suspects = tuple(sorted({rank for rank in told.suspects if is_plain(rank)}))
    cause = told.cause or case.verdict.cause
    if (cause, suspects) == (case.verdict.cause, case.verdict.suspects):
        return None
    fork = _fork(case, told)
    found = _replayed(cause, suspects, fork, case)
    speaks_for = [c.claim.sentence() for c in claims if c.status is ClaimStatus.SUPPORTED]
    against = [f"{c.claim.sentence()}: {c.check.why}" for c in claims if c.status is ClaimStatus.CONTRADICTED]
    listed = next(
        (n for n, h in enumerate(case.verdict.hypotheses, 1) if (h.cause, h.suspects) == (cause, suspects)), None
    )
    if listed is not None:
        speaks_for.append(f"it is hypothesis {listed} in forkpoint's own list")
    if found is not None and found.explains:
        speaks_for.append("replay: with its repair the recorded job continues, and without it stops where it did")
    against += _refusals(found, case)
    if is_excluded(cause, suspects, fork, case.incident):
        against.append("the recorded calls rule it out")
    clean = tuple(map(case.clean, speaks_for[:_SHOWN])), tuple(map(case.clean, against[:_SHOWN]))
    return AnswerSide(_told(cause, suspects), *clean, found.explains if found is not None else None)


def _fork(case: Case, told: ModelHypothesis) -> Divergence | None:
    """The divergence that the hypothesis names, or the verdict's."""
    groups = {g.group for g in matching_groups(case, told.earliest_group)} if told.earliest_group else set()
    named = [d for d in case.incident.divergences if d.group in groups]
    exact = [d for d in named if told.earliest_seq in {d.seq, d.first_visible_seq, d.hang_seq}]
    return next(iter([*exact, *named]), case.verdict.divergence)


def _told(cause: Cause, suspects: tuple[int, ...]) -> str:
    return f"{cause} of {told_ranks(suspects)}" if suspects else f"{cause}, nobody named"


# ---------------------------------------------------------------------------------------------------------------------
# Where they disagree.


def _dissent(case: Case, verdict: AnswerSide, model: AnswerSide | None) -> Iterator[str]:
    for why in verdict.speaks_against:
        yield f"Checked facts contradict the verdict ({verdict.says}): {why}."
    if model is None:
        return
    undecided = case.verdict.cause in _UNDECIDED
    if model.speaks_against:
        yield f"The verdict says {verdict.says}; you say {model.says}, and checks contradict that: {model.speaks_against[0]}."
    elif undecided and model.speaks_for:
        yield f"The verdict is undecided; {len(model.speaks_for)} checks support {model.says}, and none contradicts it."
    elif model.replayed and verdict.replayed is False:
        yield f"Replay supports {model.says} and rejects the verdict: prefer {model.says}."
    elif verdict.speaks_against and model.speaks_for:
        yield f"Checks support {model.says} and contradict the verdict."
    elif model.speaks_for:
        yield (
            f"Two answers are possible: the verdict's ({verdict.says}) and yours ({model.says}), which {len(model.speaks_for)} checks "
            "support and none contradicts. A probe decides."
        )
    else:
        yield f"You say {model.says}, the verdict says {verdict.says}; no check supports yours yet."
