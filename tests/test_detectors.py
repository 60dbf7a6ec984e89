"""Each detector: recorded cases it must find, and near misses it must leave to others."""

from cases import CASES, verdict_of
from forkpoint.judge import detectors
from forkpoint.model.verdict import Cause, Finding
from looping import for_each

FINDS = {
    Cause.DIVERGENT_PATH: ["0001", "0007", "0021", "0042", "0044", "0048"],
    Cause.ORDER_INVERSION: ["0015", "0016", "0053"],
    Cause.METADATA_MISMATCH: ["0024", "0026", "0027", "0059"],
    Cause.HOST_STALL: ["0003", "0017", "0054", "0065"],
    Cause.GPU_STALL: ["0004", "0034"],
    Cause.TRANSPORT: ["0039"],
    Cause.RANK_LOST: ["0032", "0056"],
    Cause.NEVER_JOINED: ["0038", "0058"],
    Cause.STRAGGLER: ["0036"],
    Cause.SILENT_CORRUPTION: ["0136", "0137", "0140"],
}
# What it is instead, and so what the detector must see through.
NEAR_MISSES = {
    Cause.DIVERGENT_PATH: {"0015": "the same calls, permuted", "0026": "the same line", "0060": "healthy, other lines"},
    Cause.ORDER_INVERSION: {"0042": "a skip makes a ring too", "0027": "a dtype that toggles", "0064": "it completes"},
    Cause.METADATA_MISMATCH: {"0001": "another size, but another line", "0015": "sizes permuted", "0005": "a message"},
    Cause.HOST_STALL: {"0008": "a skipped step", "0061": "only caught in flight", "0012": "it left"},
    Cause.GPU_STALL: {"0036": "it came late", "0039": "a connection broke", "0046": "healthy, in flight"},
    Cause.TRANSPORT: {"0032": "a killed peer closes connections", "0003": "connections close after the timeout"},
    Cause.RANK_LOST: {"0002": "it raised", "0012": "it ended in order", "0061": "all are there"},
    Cause.NEVER_JOINED: {"0040": "the first collective differs", "0003": "they had joined"},
    Cause.STRAGGLER: {"0003": "it never came", "0004": "all came in time"},
    Cause.SILENT_CORRUPTION: {"0138": "a bad batch on all ranks", "0139": "BatchNorm statistics may differ"},
}


def _findings(number: str) -> list[Finding]:
    verdict = verdict_of(number)
    return [f for f in verdict.findings if f.detector != "undecided"]


@for_each(("cause", "number"), [(c, n) for c, numbers in FINDS.items() for n in numbers])
def test_a_detector_finds_its_cases(cause: Cause, number: str) -> None:
    assert cause in [f.cause for f in _findings(number)]


@for_each(("cause", "number"), [(c, n) for c, misses in NEAR_MISSES.items() for n in misses])
def test_a_detector_leaves_its_near_misses_alone(cause: Cause, number: str) -> None:
    assert cause not in [f.cause for f in _findings(number)]


def test_every_detector_has_both() -> None:
    listed = {find.__module__.rsplit(".", 1)[-1].replace("_", "-") for find in detectors.DETECTORS}

    assert {c.value for c in FINDS} == {c.value for c in NEAR_MISSES} == listed


@for_each("number", [n for numbers in FINDS.values() for n in numbers])
def test_every_claim_cites_a_file_that_exists_and_says_where(number: str) -> None:
    for finding in _findings(number):
        assert finding.evidence
        for evidence in finding.evidence:
            assert (CASES.parent / evidence.file).is_file()
            assert evidence.where
            assert evidence.says
