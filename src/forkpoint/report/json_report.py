"""Verdict -> JSON, schema `forkpoint.verdict/1` (`verdict.schema.json` beside this file)."""

import json
import re

from forkpoint.model.divergence import Cohort, Divergence
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Coverage, Evidence, Finding, Fix, Moment, Probe, Site, Verdict

SCHEMA = "forkpoint.verdict/1"

_MAX_FRAMES = 30
_NUMBER_LIST = re.compile(r"\[\s+(-?\d+(?:,\s+-?\d+)*)\s+\]")

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def render_json(verdict: Verdict) -> str:
    """One ASCII document without a final newline. Strings from input are data: nothing in it can act on a terminal."""
    document = json.dumps(_valid_text(_verdict(verdict)), indent=2)
    # json leaves DEL as it is; and a thousand ranks on a thousand lines help nobody.
    return _NUMBER_LIST.sub(_on_one_line, document.replace("\x7f", "\\u007f"))


def _verdict(verdict: Verdict) -> Json:
    ids = {evidence: f"E{number}" for number, evidence in enumerate(verdict.evidence, start=1)}
    return {
        "schema": SCHEMA,
        "symptom": verdict.symptom,
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "action": verdict.action,
        "suspects": list(verdict.suspects),
        "summary": verdict.summary,
        "divergence": None if verdict.divergence is None else _divergence(verdict.divergence),
        "sites": [_site(site) for site in verdict.sites],
        "coverage": _coverage(verdict.coverage),
        "findings": [_finding(finding, ids) for finding in verdict.findings],
        "evidence": [_evidence(evidence, number) for evidence, number in ids.items()],
        "timeline": [_moment(moment) for moment in verdict.moments],
        "probes": [_probe(probe) for probe in verdict.probes],
        "fixes": [_fix(fix) for fix in verdict.fixes],
        "next": list(verdict.next),
    }


def _divergence(divergence: Divergence) -> Json:
    group = divergence.group
    return {
        "group": {"name": group.name, "desc": group.desc, "ranks": list(group.ranks)},
        "kind": divergence.kind,
        "channel": None if divergence.channel is None else list(divergence.channel),
        "seq": divergence.seq,
        "first_visible_seq": divergence.first_visible_seq,
        "hang_seq": divergence.hang_seq,
        "cohorts": [_cohort(cohort) for cohort in divergence.cohorts],
    }


def _cohort(cohort: Cohort) -> Json:
    return {
        "ranks": list(cohort.ranks),
        "role": cohort.role,
        "op": cohort.op,
        "sizes": [list(size) for size in cohort.sizes],
        "dtypes": list(cohort.dtypes),
        "state": cohort.state,
        "where": cohort.where,
        "stack": None if cohort.stack is None else _stack(cohort.stack),
    }


def _stack(stack: Stack) -> list[Json]:
    return [f"{frame.filename}:{frame.line} {frame.name}" for frame in stack[:_MAX_FRAMES]]


def _site(site: Site) -> Json:
    return {
        "file": site.file,
        "line": site.line,
        "function": site.function,
        "condition": site.condition,
        "why": site.why,
        "cohort": site.cohort,
    }


def _coverage(coverage: Coverage) -> Json:
    return {
        "ranks": coverage.ranks,
        "dumps": coverage.dumps,
        "logs": coverage.logs,
        "stacks": coverage.stacks,
        "notes": list(coverage.notes),
        "set_aside": [{"file": one.file, "rank": one.rank, "why": one.why} for one in coverage.set_aside],
    }


def _finding(finding: Finding, ids: dict[Evidence, str]) -> Json:
    return {
        "detector": finding.detector,
        "cause": finding.cause,
        "suspects": list(finding.suspects),
        "confidence": finding.confidence,
        "evidence": [ids[evidence] for evidence in finding.evidence],
    }


def _evidence(evidence: Evidence, number: str) -> Json:
    return {
        "id": number,
        "file": evidence.file,
        "rank": evidence.rank,
        "where": evidence.where,
        "says": evidence.says,
    }


def _moment(moment: Moment) -> Json:
    return {
        "when": moment.when,
        "until": moment.until,
        "bound": moment.bound,
        "utc": moment.utc,
        "clock": moment.clock,
        "source": moment.source,
        "kind": moment.kind,
        "ranks": list(moment.ranks),
        "host": moment.host,
        "says": moment.says,
        "file": moment.evidence.file,
        "where": moment.evidence.where,
    }


def _probe(probe: Probe) -> Json:
    return {"title": probe.title, "where": probe.where, "patch": probe.patch}


def _fix(fix: Fix) -> Json:
    return {"title": fix.title, "patch": fix.patch}


def _valid_text(value: Json) -> Json:
    r"""Lone surrogates (undecodable bytes of a file name) as text `\udcff`: strict parsers refuse them raw."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {key: _valid_text(item) for key, item in value.items()}
    return value


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{' '.join(match[1].split())}]"
