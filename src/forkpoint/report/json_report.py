"""Verdict -> JSON, schema `forkpoint.verdict/1` (see `verdict.schema.json`)."""

import re
from typing import cast

import msgspec

from forkpoint.model.incident import Cohort, Divergence
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Evidence, Finding, Hypothesis, Moment, Verdict
from forkpoint.report.escape import Json, ascii_json, map_texts, valid_text

SCHEMA = "forkpoint.verdict/1"

_MAX_FRAMES = 30
_NUMBER_LIST = re.compile(r"\[\s+(-?\d+(?:,\s+-?\d+)*)\s+\]")


def render_json(verdict: Verdict) -> str:
    """One ASCII document without a final newline. Strings from input are escaped: none can control a terminal."""
    # Lists of numbers go on one line: a thousand ranks on a thousand lines help nobody.
    return _NUMBER_LIST.sub(_on_one_line, ascii_json(map_texts(verdict_document(verdict), valid_text), indent=2))


def verdict_document(verdict: Verdict) -> dict[str, Json]:
    """Sites, coverage, evidence, probes and fixes are written with their own fields, which are part of the schema."""
    ids = {evidence: f"E{number}" for number, evidence in enumerate(verdict.evidence, start=1)}
    return {
        "schema": SCHEMA,
        "symptom": verdict.symptom,
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "action": verdict.action,
        "suspects": verdict.suspects,
        "headline": verdict.headline,
        "summary": verdict.summary,
        "divergence": None if verdict.divergence is None else _divergence(verdict.divergence),
        "sites": _as_is(verdict.sites),
        "coverage": _as_is(verdict.coverage),
        "findings": [_finding(finding, ids) for finding in verdict.findings],
        "evidence": [{"id": number, **_as_is(evidence)} for evidence, number in ids.items()],
        "timeline": [_moment(moment) for moment in verdict.moments],
        "probes": _as_is(verdict.probes),
        "fixes": _as_is(verdict.fixes),
        "hypotheses": [_hypothesis(hypothesis, ids) for hypothesis in verdict.hypotheses],
        "next": verdict.next,
    }


def _divergence(divergence: Divergence) -> Json:
    group = divergence.group
    return {
        "group": {"name": group.name, "desc": group.desc, "ranks": group.ranks},
        "kind": divergence.kind,
        "channel": divergence.channel,
        "seq": divergence.seq,
        "first_visible_seq": divergence.first_visible_seq,
        "hang_seq": divergence.hang_seq,
        "cohorts": [_cohort(cohort) for cohort in divergence.cohorts],
    }


def _cohort(cohort: Cohort) -> Json:
    return {
        "ranks": cohort.ranks,
        "role": cohort.role,
        "op": cohort.op,
        "sizes": cohort.sizes,
        "dtypes": cohort.dtypes,
        "state": cohort.state,
        "where": cohort.where,
        "stack": None if cohort.stack is None else _stack(cohort.stack),
    }


def _stack(stack: Stack) -> list[Json]:
    return [f"{frame.filename}:{frame.line} {frame.name}" for frame in stack[:_MAX_FRAMES]]


def _finding(finding: Finding, ids: dict[Evidence, str]) -> Json:
    return {
        "detector": finding.detector,
        "cause": finding.cause,
        "suspects": finding.suspects,
        "confidence": finding.confidence,
        "evidence": [ids[evidence] for evidence in finding.evidence],
    }


def _hypothesis(hypothesis: Hypothesis, ids: dict[Evidence, str]) -> Json:
    fork = hypothesis.divergence
    return {
        "cause": hypothesis.cause,
        "alternatives": hypothesis.alternatives,
        "suspects": hypothesis.suspects,
        "sides": hypothesis.sides or None,
        "likelihood": hypothesis.likelihood,
        "says": hypothesis.says,
        "fork": None if fork is None else {"group": fork.group.name, "channel": fork.channel, "seq": fork.seq},
        "for": [ids[evidence] for evidence in hypothesis.supports],
        "against": [ids[evidence] for evidence in hypothesis.against],
        "lacks": hypothesis.lacks,
        "repair": hypothesis.repair,
        "steps": hypothesis.steps,
        "decides": hypothesis.decides,
    }


def _moment(moment: Moment) -> Json:
    document = _as_is(moment)
    del document["evidence"]
    return {**document, "file": moment.evidence.file, "where": moment.evidence.where}


def _as_is(value: object) -> dict[str, Json]:
    """A value of the model, with its own field names."""
    return cast("dict[str, Json]", msgspec.to_builtins(value))


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{' '.join(match[1].split())}]"
