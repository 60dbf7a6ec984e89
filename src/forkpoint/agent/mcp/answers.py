"""What goes back to a peer: lines of cleaned text, with no second copy as structured data."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from forkpoint.agent.case import Wire
from forkpoint.agent.catalogue import offer_at, offers
from forkpoint.agent.hypothesis import (
    AnswerSide,
    BothAnswers,
    CheckedClaim,
    ModelHypothesis,
    Remedy,
    check_claims,
    compare,
)
from forkpoint.agent.mcp.desk import Item, Opened
from forkpoint.agent.patch_check import check_patch as check_for
from forkpoint.agent.tools.verdict import tell_claim
from forkpoint.brief.calls import tell_divergence
from forkpoint.brief.case import Case, Fact, QuestionRefused
from forkpoint.gather.bundle_evidence import redact_verdict
from forkpoint.model.incident import Cohort
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import name_ranks
from forkpoint.report.escape import escape
from forkpoint.report.json_report import Json, render_json
from forkpoint.report.text import render_text

_WIDTH = 100
_PIECE = re.compile(r"[^\n\t]+")
_RANGES = 4
_COHORTS = 4
_NOTES = 2


# ---------------------------------------------------------------------------------------------------------------------
# The verdict.


def verdict_lines(case: Case) -> Iterator[Item]:
    """What an agent needs first, on one page: judgement, fork, sites, coverage, other hypotheses, next steps."""
    verdict = case.verdict
    for line in chain(_judgement(verdict), _fork(verdict), _sites(verdict), _coverage(verdict), _hypotheses(verdict)):
        yield case.clean(line)
    for step in verdict.next[:_NOTES]:
        yield case.clean(f"Next: {step}")


def _judgement(verdict: Verdict) -> Iterator[str]:
    who = name_ranks(verdict.suspects, _RANGES) if verdict.suspects else "nobody named"
    yield f"{verdict.cause} (confidence {verdict.confidence:g}), {who}; symptom {verdict.symptom or 'not known'}; {verdict.action}"
    yield verdict.headline
    yield verdict.summary


def _fork(verdict: Verdict) -> Iterator[str]:
    fork = verdict.divergence
    if fork is None:
        return
    slot = f"message {fork.seq} of {fork.channel[0]}->{fork.channel[1]}" if fork.channel else f"seq {fork.seq}"
    yield f"Fork: {fork.group} {slot}; {tell_divergence(fork)}"
    yield from (f"  {_tell_cohort(cohort)}" for cohort in fork.cohorts[:_COHORTS])
    if len(fork.cohorts) > _COHORTS:
        yield f"  and {len(fork.cohorts) - _COHORTS} more cohorts (table)"


def _tell_cohort(cohort: Cohort) -> str:
    told = [cohort.op or "no call here", str(cohort.state or ""), cohort.where or ""]
    return f"{name_ranks(cohort.ranks, _RANGES)} {cohort.role}: {', '.join(filter(None, told))}"


def _sites(verdict: Verdict) -> Iterator[str]:
    for site in verdict.sites[:_NOTES]:
        condition = f" `{site.condition}`" if site.condition else ""
        yield f"Site: {site.file}:{site.line} in {site.function}{condition}{f': {site.why}' if site.why else ''}"


def _coverage(verdict: Verdict) -> Iterator[str]:
    read = verdict.coverage
    aside = f", {len(read.set_aside)} files set aside (files)" if read.set_aside else ""
    yield f"Read: {read.dumps} dumps, {read.logs} logs, {read.stacks} stacks of {read.ranks} ranks{aside}"
    yield from (f"Note: {note}" for note in read.notes[:_NOTES])


def _hypotheses(verdict: Verdict) -> Iterator[str]:
    for number, hypothesis in enumerate(verdict.hypotheses, start=1):
        replayed = f"; {hypothesis.repair}" if hypothesis.repair else ""
        yield f"H{number} {hypothesis.likelihood}: {tell_claim(hypothesis)}{replayed}"


def verdict_as_json(case: Case) -> dict[str, Any]:
    """Schema `forkpoint.verdict/1`."""
    verdict = json.loads(render_json(case.verdict))
    return {key: _clean(case, value) for key, value in verdict.items()}


def report_as_text(case: Case) -> str:
    """As `diagnose` prints it. Redacted before lines are wrapped: half a secret would not be recognised."""
    return clean_lines(case, render_text(redact_verdict(case.verdict, case.redactor.redact), _WIDTH).plain)


def clean_lines(case: Case, text: str) -> str:
    """Redacted as a whole, because a secret may span lines; then escaped, except line ends and tabs, which patches need."""
    return _PIECE.sub(lambda piece: escape(piece[0]), case.redactor.redact(text))


def _clean(case: Case, value: Json) -> Json:
    if isinstance(value, str):
        return clean_lines(case, value)
    if isinstance(value, list):
        return list(map(partial(_clean, case), value))
    if isinstance(value, dict):
        return {key: _clean(case, item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------------------------------------------------------------
# A hypothesis: its checked claims, then both answers with the evidence for each.


def submit(opened: Opened, hypothesis: ModelHypothesis) -> Iterable[Item]:
    case = opened.case
    checked = check_claims(case, opened.ledger, hypothesis)
    compared = compare(case, hypothesis, checked.claims)
    return (
        *compared.dissent,
        *(item for claim in checked.claims for item in _claim_lines(case, claim)),
        *(f"not checked: {why}" for why in checked.refused),
        *comparison_lines(compared),
    )


def _claim_lines(case: Case, checked: CheckedClaim) -> Iterator[Item]:
    yield f"{checked.status}: {case.clean(checked.claim.sentence())}. {case.clean(checked.check.why)}."
    yield from checked.check.facts


def comparison_lines(compared: BothAnswers) -> Iterator[str]:
    """Both answers, side by side."""
    yield from _side("The verdict", compared.verdict)
    if compared.model is None:
        yield "Yours names the same cause and ranks as the verdict."
    else:
        yield from _side("Yours", compared.model)


def _side(whose: str, side: AnswerSide) -> Iterator[str]:
    yield f"{whose}: {side.says}"
    yield from (f"  for: {one}" for one in side.speaks_for)
    yield from (f"  against: {one}" for one in side.speaks_against)


# ---------------------------------------------------------------------------------------------------------------------
# Probes, fixes and patches.

_MASKED = "secrets or names in it were masked, so it does not apply as shown here"


class OfferRemedy(Wire):
    file: str | None = None
    """Default: the verdict's places."""
    line: int | None = None


class CheckPatch(Wire):
    patch: str
    """A unified diff."""
    functions: list[str]
    """Those it changes (`Trainer.fit`)."""


def offer_remedy(opened: Opened, asked: OfferRemedy) -> Iterable[Item]:
    case = opened.case
    if (asked.file is None) != (asked.line is None):
        raise QuestionRefused("give both file and line, or neither for the verdict's own places")
    offered = offers(case) if asked.file is None or asked.line is None else offer_at(case, asked.file, asked.line)
    if not offered:
        raise QuestionRefused("no patch for this case: no source was given, or no branch was found in it")
    return [line for one in offered for line in _remedy_lines(case, one.remedy)]


def check_patch(opened: Opened, asked: CheckPatch) -> Iterable[Item]:
    return [*_remedy_lines(opened.case, check_for(opened.case, asked.patch, asked.functions))]


def _remedy_lines(case: Case, remedy: Remedy) -> Iterator[str]:
    patch = clean_lines(case, remedy.patch)
    notes = (*remedy.notes, *((_MASKED,) if patch != remedy.patch else ()))
    trusted = "made by forkpoint" if remedy.trusted else "not trusted: only checked to apply and to parse"
    where = f" at {case.clean(remedy.where)}" if remedy.where is not None else ""
    yield f"{remedy.kind}{where}: {case.clean(remedy.title)} ({trusted})"
    yield from (f"note: {case.clean(note)}" for note in notes)
    yield from patch.splitlines()


def as_fact(fact: Fact, number: str) -> dict[str, object]:
    return {"id": number, "where": fact.where, "says": fact.says}
