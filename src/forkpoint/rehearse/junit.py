"""A rehearsal as JUnit XML: one test for each trial, so that CI shows which failed and why."""

from xml.etree import ElementTree as ET

from forkpoint.rehearse.model import Rehearsal, TrialOutcome, TrialResult
from forkpoint.rehearse.render import place_of, tell_fork


def render_junit(rehearsal: Rehearsal) -> str:
    results = rehearsal.results
    suite = ET.Element(
        "testsuite",
        name="forkpoint rehearse",
        tests=str(len(results)),
        failures=str(len(rehearsal.parts)),
        skipped=str(sum(r.outcome is TrialOutcome.NOT_REACHED for r in results)),
        errors="0",
        time=f"{rehearsal.seconds:.3f}",
    )
    for result in results:
        _add(suite, result)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _add(suite: ET.Element, result: TrialResult) -> None:
    trial = result.trial
    case = ET.SubElement(
        suite, "testcase", classname=f"rehearse.{trial.kind}", name=_plain(trial.name), time=f"{result.seconds:.3f}"
    )
    if result.outcome is TrialOutcome.NOT_REACHED:
        ET.SubElement(case, "skipped", message=_plain(result.says))
    if result.outcome is TrialOutcome.PARTS:
        text = "\n".join(line for line in (_effect(result), tell_fork(result), result.says, *_fixes(result)) if line)
        failure = ET.SubElement(case, "failure", message=_plain(f"ranks diverge at {place_of(result)}"), type="parts")
        failure.text = _plain(text)


def _effect(result: TrialResult) -> str:
    return f"rank {result.trial.rank}: {result.effect.says}" if result.effect else ""


def _fixes(result: TrialResult) -> list[str]:
    return [f"fix: {fix['title']}" for fix in (result.verdict or {}).get("fixes", [])[:1]]


def _plain(text: str) -> str:
    """XML does not allow control characters."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
