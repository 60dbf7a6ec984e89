"""Renders the model's explanation: as text below the verdict's report, as JSON that contains the verdict unchanged, and as a page of Markdown
to forward to a colleague.

JSON: schema `forkpoint.agent/1`, `agent.schema.json` beside this file.
"""

from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from textwrap import wrap
from typing import Any

from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.hypothesis import AnswerSide, BothAnswers, CheckedClaim, Explanation, ModelHypothesis, Remedy
from forkpoint.brief.case import Case, is_plain, told_ranks
from forkpoint.report.escape import ascii_json, escape
from forkpoint.report.json_report import render_json
from forkpoint.report.markdown import code, fenced, sentence

SCHEMA = "forkpoint.agent/1"
MAX_OPINION = 400
_MAX_READ = 20_000
"""Characters of a model's text that are read. Even after masking, more is left than is shown."""
_MAX_SUSPECTS = 1_000
_HEADS = {
    ClaimStatus.SUPPORTED: "Supported by the evidence",
    ClaimStatus.UNVERIFIABLE: "Unverifiable: neither supported nor contradicted",
    ClaimStatus.CONTRADICTED: "Contradicted by the evidence",
}


def render_explanation_json(case: Case, explanation: Explanation) -> str:
    """`verdict` comes last and is byte for byte what `diagnose --json` prints."""
    told = ascii_json({"schema": SCHEMA, "explanation": _explanation(case, explanation)}, indent=2)
    return f'{told[:-2]},\n  "verdict": {render_json(case.verdict)}\n}}'


def _explanation(case: Case, explanation: Explanation) -> dict[str, Any]:
    hypothesis = explanation.hypothesis
    return {
        "model": escape(explanation.model),
        "ended": None if explanation.ended is None else escape(explanation.ended),
        "hypothesis": None if hypothesis is None else _hypothesis(case, hypothesis),
        "claims": [_claim(case, checked) for checked in explanation.claims],
        "comparison": None if explanation.comparison is None else _comparison(explanation.comparison),
        "remedies": [asdict(remedy) for remedy in explanation.remedies],
        "refused": [escape(why) for why in explanation.refused],
        "requests": explanation.requests,
        "tool_calls": explanation.tool_calls,
        "input_tokens": explanation.usage.input_tokens,
        "output_tokens": explanation.usage.output_tokens,
        "cost_usd": explanation.usage.cost_usd,
    }


def _hypothesis(case: Case, told: ModelHypothesis) -> dict[str, Any]:
    return {
        "cause": told.cause,
        "opinion": _clean(case, told.opinion),
        "why": _clean(case, told.why),
        "refuted_by": _clean(case, told.refuted_by),
        "confidence": _confidence(told),
        "earliest": {"group": _clean(case, told.earliest_group), "seq": _number(told.earliest_seq)},
        "suspects": _suspects(told),
        "site": {"file": _clean(case, told.site_file), "line": _number(told.site_line)},
        "missing_evidence": _clean(case, told.missing_evidence),
    }


def _suspects(told: ModelHypothesis) -> list[int]:
    return sorted({rank for rank in told.suspects if is_plain(rank)})[:_MAX_SUSPECTS]


def _number(value: int | None) -> int | None:
    """None also for an impossible value."""
    return value if value is not None and is_plain(value) else None


def _confidence(told: ModelHypothesis) -> float | None:
    """Clamped to 0..1. None: not a finite number."""
    return min(max(told.confidence, 0.0), 1.0) if isfinite(told.confidence) else None


def _clean(case: Case, text: str | None) -> str | None:
    """The model's own words on one line, redacted, and cut."""
    if text is None:
        return None
    told = case.clean(" ".join(text[:_MAX_READ].split()))
    return told if len(told) <= MAX_OPINION else f"{told[:MAX_OPINION]} ..."


def _claim(case: Case, checked: CheckedClaim) -> dict[str, Any]:
    return {
        "kind": checked.claim.kind,
        "says": case.clean(checked.claim.sentence()),
        "status": checked.status,
        "why": case.clean(checked.check.why),
        "evidence": [f"{fact.where}: {fact.says}" for fact in checked.check.facts],
    }


def _comparison(compared: BothAnswers) -> dict[str, Any]:
    return {
        "verdict": _side(compared.verdict),
        "model": None if compared.model is None else _side(compared.model),
        "dissent": [escape(one) for one in compared.dissent],
    }


def _side(side: AnswerSide) -> dict[str, Any]:
    return {
        "says": escape(side.says),
        "for": [escape(one) for one in side.speaks_for],
        "against": [escape(one) for one in side.speaks_against],
        "replayed": side.replayed,
    }


def render_explanation(case: Case, explanation: Explanation, width: int) -> str:
    """Plain text, printed below the verdict's report."""
    return "\n".join(_lines(case, explanation, width))


def _lines(case: Case, explanation: Explanation, width: int) -> Iterator[str]:
    yield f"What {escape(explanation.model)} adds"
    yield from _wrapped("Nothing below changed the verdict above: it was made without a model.", width)
    if explanation.ended is not None:
        yield from _wrapped(f"It ended early: {escape(explanation.ended)}.", width)
    if explanation.comparison is not None:
        yield from _comparison_lines(explanation.comparison, width)
    for status in _HEADS:
        yield from _claim_lines(case, explanation, status, width)
    if explanation.hypothesis is not None:
        yield from _opinion_lines(case, explanation.hypothesis, width)
    for remedy in explanation.remedies:
        yield from _remedy_lines(remedy, width)
    if explanation.refused:
        yield from ("", "Refused")
        yield from (line for why in explanation.refused for line in _wrapped(f"- {escape(why)}", width))
    yield from ("", _tell_cost(explanation))


def _comparison_lines(compared: BothAnswers, width: int) -> Iterator[str]:
    """Where the two answers differ, and the evidence for each."""
    if compared.dissent:
        yield from ("", "Where it and the verdict differ")
        yield from (line for one in compared.dissent for line in _wrapped(f"- {escape(one)}", width))
    if compared.model is None:
        return
    for whose, side in (("The verdict", compared.verdict), ("The model", compared.model)):
        yield from _wrapped(f"{whose}: {escape(side.says)}", width)
        told = [*(f"for: {one}" for one in side.speaks_for), *(f"against: {one}" for one in side.speaks_against)]
        yield from (line for one in told for line in _wrapped(f"    {escape(one)}", width))


def _claim_lines(case: Case, explanation: Explanation, status: ClaimStatus, width: int) -> Iterator[str]:
    found = [checked for checked in explanation.claims if checked.status is status]
    if found:
        yield from ("", _HEADS[status])
    for checked in found:
        why = "" if status is ClaimStatus.SUPPORTED else f" ({case.clean(checked.check.why)})"
        yield from _wrapped(f"- {case.clean(checked.claim.sentence())}{why}", width)
        for fact in checked.check.facts[:2]:
            yield from _wrapped(f"    {fact.where}: {fact.says}", width)


def _opinion_lines(case: Case, told: ModelHypothesis, width: int) -> Iterator[str]:
    yield from ("", "Its opinion, in its own words, not checked")
    yield from _wrapped(f"> {_clean(case, told.opinion)}", width)
    answers = _answers(case, told)
    if answers:
        yield from _wrapped(f"> {'; '.join(answers)}", width)
    if told.why:
        yield from _wrapped(f"> why it differed: {_clean(case, told.why)}", width)
    if told.refuted_by:
        yield from _wrapped(f"> what would prove it wrong: {_clean(case, told.refuted_by)}", width)
    if told.missing_evidence:
        yield from _wrapped(f"> what would decide: {_clean(case, told.missing_evidence)}", width)


def _answers(case: Case, told: ModelHypothesis) -> list[str]:
    """The structured fields of its answer."""
    seq, line, confidence = _number(told.earliest_seq), _number(told.site_line), _confidence(told)
    earliest = f"earliest mismatch {_clean(case, told.earliest_group)} seq {seq}"
    site = f"site {_clean(case, told.site_file)}:{line}"
    return [
        *([earliest] if told.earliest_group and seq is not None else []),
        *([f"cause {told.cause}"] if told.cause else []),
        *([f"suspects {told_ranks(_suspects(told))}"] if _suspects(told) else []),
        *([site] if told.site_file and line is not None else []),
        *([f"confidence {confidence:.2f}"] if confidence is not None else []),
    ]


def _remedy_lines(remedy: Remedy, width: int) -> Iterator[str]:
    yield ""
    if not remedy.trusted:
        yield "UNTRUSTED, written by the model: read it before you use it"
    yield from _wrapped(f"{remedy.kind.capitalize()} it chose: {escape(remedy.title)}", width)
    yield from (line for note in remedy.notes for line in _wrapped(f"- {escape(note)}", width))
    # Keep tabs: a patch needs them, and they are harmless on a terminal.
    yield from ("\t".join(map(escape, line.split("\t"))) for line in remedy.patch.splitlines())


def _tell_cost(explanation: Explanation) -> str:
    usage = explanation.usage
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
    return f"{explanation.requests} requests, {explanation.tool_calls} tool calls, {tokens}"


def _wrapped(text: str, width: int) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return wrap(text, width, initial_indent="", subsequent_indent=indent, break_long_words=False) or [""]


# ---------------------------------------------------------------------------------------------------------------------
# A page of Markdown to forward to a colleague: what happened, why, a probe, a patch, what would prove it wrong.

_LONGEST = 600
_FACTS = 2


def render_forward(case: Case, explanation: Explanation) -> str:
    told = explanation.hypothesis
    lines = [f"# {_cut(case, case.verdict.summary)}", *_verdict(case)]
    if told is not None:
        lines += ["", f"Quotations are the words of {code(explanation.model)}. forkpoint checked the rest."]
        lines += _said(case, "What happened", told.opinion) + _said(case, "Why it differed", told.why)
    lines += [*_differ(case, explanation), *_checked(case, explanation), *_remedies(explanation)]
    if told is not None:
        lines += _said(case, "What would prove it wrong", told.refuted_by) + _missing(case, told)
    return "\n".join(lines) + "\n"


def _cut(case: Case, text: str) -> str:
    return sentence(case.clean(" ".join(text.split())), _LONGEST)


def _verdict(case: Case) -> Iterator[str]:
    verdict = case.verdict
    yield ""
    yield f"forkpoint: {verdict.cause}, confidence {verdict.confidence:g}, {verdict.action}."
    for site in verdict.sites[:1]:
        yield f"Place: {code(case.clean(f'{site.file}:{site.line}'))}."


def _said(case: Case, head: str, words: str) -> list[str]:
    """A section that quotes the model."""
    return ["", f"## {head}", "", f"> {_cut(case, words)}"] if words.strip() else []


def _differ(case: Case, explanation: Explanation) -> Iterator[str]:
    compared = explanation.comparison
    if compared is None or not compared.dissent:
        return
    yield from ("", "## Where the model and the verdict differ", "")
    yield from (f"- {_cut(case, one)}" for one in compared.dissent)
    for whose, side in (("verdict", compared.verdict), ("model", compared.model)):
        if side is not None:
            told = [
                *(f"for it: {one}" for one in side.speaks_for),
                *(f"against it: {one}" for one in side.speaks_against),
            ]
            yield f"- {whose}: {_cut(case, side.says)}"
            yield from (f"  - {_cut(case, one)}" for one in told)


def _checked(case: Case, explanation: Explanation) -> Iterator[str]:
    supported = [c for c in explanation.claims if c.status is ClaimStatus.SUPPORTED]
    if supported:
        yield from ("", "## Checked facts", "")
    for checked in supported:
        yield f"- {_cut(case, checked.claim.sentence())}"
        yield from (f"  - {code(f'{f.where}: {f.says}')}" for f in checked.check.facts[:_FACTS])


def _remedies(explanation: Explanation) -> Iterator[str]:
    for kind, head in (("probe", "The smallest probe"), ("fix", "The patch")):
        found = [remedy for remedy in explanation.remedies if remedy.kind == kind]
        if found:
            yield from ("", f"## {head}", "")
        for remedy in found:
            yield from _remedy(remedy)


def _remedy(remedy: Remedy) -> Iterator[str]:
    who = "made by forkpoint" if remedy.trusted else "written by the model: read it before you use it"
    yield f"{sentence(remedy.title, _LONGEST)} ({who})"
    yield from ("", *fenced(remedy.patch))


def _missing(case: Case, told: ModelHypothesis) -> list[str]:
    return _said(case, "What would decide", told.missing_evidence)
