"""A page of Markdown to forward to a colleague: what happened, why, a probe, a patch, what would prove it wrong."""

from collections.abc import Iterator

from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.hypothesis import Explanation, ModelHypothesis, Remedy
from forkpoint.brief.case import Case
from forkpoint.report.markdown import code, fenced, sentence

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
