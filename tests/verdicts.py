"""Hand-made verdicts, and any verdict at all, for tests of what is rendered from them."""

from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from forkpoint.model.incident import Cohort, Divergence, PartingKind, Role
from forkpoint.model.op import Frame, OpState
from forkpoint.model.verdict import (
    Action,
    Cause,
    Coverage,
    Evidence,
    Finding,
    Fix,
    Hypothesis,
    Likelihood,
    Moment,
    Probe,
    Site,
    Source,
    Symptom,
    Verdict,
)
from forkpoint.model.world import ProcessGroup

TORCH = "/opt/conda/lib/python3.12/site-packages/torch/distributed/"
TRAINER = "/home/mlops/trainer/"

SKIPPED_BY_OTHERS = (
    Frame("all_reduce", TORCH + "distributed_c10d.py", 3068),
    Frame("wrapper", TORCH + "c10d_logger.py", 83),
    Frame("compute", TRAINER + "metrics.py", 15),
    Frame("log_progress", TRAINER + "train.py", 16),
    Frame("main", TRAINER + "train.py", 37),
    Frame("<module>", TRAINER + "train.py", 42),
)
ENTRY = Evidence("nccl_trace_rank_0", 0, "entry 15", "all_reduce [2] Float was issued from metrics.py:15")
WATCHDOG = Evidence("log_rank_1.txt", 1, "line 15", "watchdog: ALLREDUCE seq 16 of 71178 elements ran 20091 ms")

DIVERGENCE = Divergence(
    how=PartingKind.METADATA,
    group=ProcessGroup("0", "default_pg", (0, 1, 2, 3)),
    channel=None,
    seq=16,
    first_visible_seq=16,
    hang_seq=16,
    cohorts=(
        Cohort((1, 2, 3), Role.WAITING, "all_reduce", ((71178,),), ("Float",), OpState.SCHEDULED, ()),
        Cohort((0,), Role.ELSEWHERE, "all_reduce", ((2,),), ("Float",), OpState.ENTERING, SKIPPED_BY_OTHERS),
    ),
    odd=(0,),
    sides=((1, 2, 3), (0,)),
)
FINDING = Finding(
    detector="divergent_path",
    cause=Cause.DIVERGENT_PATH,
    suspects=(0,),
    confidence=0.93,
    summary="Rank 0 calls all_reduce at metrics.py:15, which ranks 1-3 never reach.",
    action=Action.FIX_CODE,
    evidence=(ENTRY, WATCHDOG),
    divergence=DIVERGENCE,
    probes=(Probe("print the rank before the call", "train.py:15", "--- a\n+++ b\n"),),
    fixes=(Fix("Call metric.compute() on every rank; only the logging belongs under the condition."),),
    next=("forkpoint diagnose DIR --source SRC",),
)
ISSUED = Moment(
    when="2026-11-15T01:18:07Z",
    until=None,
    bound=False,
    utc="2026-11-15T01:18:07Z",
    clock="UTC",
    source=Source.RECORDER,
    kind="issued",
    ranks=(0,),
    host="node-1",
    says="issued all_reduce [2], default_pg seq 16",
    evidence=ENTRY,
)
TIMED_OUT = Moment(
    when="1115 01:18:27",
    until="1115 01:18:28",
    bound=False,
    utc="2026-11-15T01:18:27Z",
    clock="UTC",
    source=Source.LOG,
    kind="watchdog-timeout",
    ranks=(1, 2, 3),
    host=None,
    says="timed out in ALLREDUCE seq 16 after 20.1 s",
    evidence=WATCHDOG,
)
DECIDED = Hypothesis(
    cause=Cause.DIVERGENT_PATH,
    suspects=(0,),
    says=FINDING.summary,
    decides="forkpoint diagnose DIR --source SRC",
    likelihood=Likelihood.LIKELY,
    supports=(ENTRY, WATCHDOG),
    divergence=DIVERGENCE,
    repair="had rank 0 left out its call at default_pg seq 16, all 4 ranks would have gone on",
    steps=(
        "suppose rank 0 had left out its call at default_pg seq 16",
        "then default_pg seq 16 (ranks 1-3) finishes",
    ),
)
STALLED = Hypothesis(
    cause=Cause.HOST_STALL,
    suspects=(),
    says="rank 0 or rank 2 is stuck",
    decides="py-spy dump --pid 77",
    alternatives=(Cause.RANK_LOST,),
    sides=((0,), (2,)),
    against=(WATCHDOG,),
    lacks=("the log of rank 0",),
)
FOUND = Verdict(
    symptom=Symptom.WATCHDOG_TIMEOUT,
    cause=Cause.DIVERGENT_PATH,
    confidence=0.93,
    action=Action.FIX_CODE,
    suspects=(0,),
    summary=FINDING.summary,
    divergence=DIVERGENCE,
    coverage=Coverage(ranks=4, dumps=4, logs=4, stacks=4, notes=("rank 2: cut after 12 entries",)),
    findings=(FINDING, replace(FINDING, detector="host_stall", cause=Cause.HOST_STALL, confidence=0.2)),
    sites=(Site("train.py", 15, "log_progress", "is_main_process()", "true on rank 0 only", 1),),
    next=FINDING.next,
    hypotheses=(DECIDED, STALLED),
    moments=(ISSUED, TIMED_OUT),
    headline="Rank 0 ran `compute()` at train.py:15, which ranks 1-3 skipped; `is_main_process()` was true on it.",
)
HEALTHY = Verdict(
    symptom=Symptom.NONE,
    cause=Cause.HEALTHY,
    confidence=0.9,
    action=Action.NONE,
    suspects=(),
    summary="All 4 ranks agree to the last recorded op.",
    divergence=None,
    coverage=Coverage(ranks=4, dumps=4, logs=0, stacks=0),
    headline="All 4 ranks agree to the last recorded op.",
)
INCONCLUSIVE = replace(
    HEALTHY,
    symptom=None,
    cause=Cause.INCONCLUSIVE,
    confidence=0.0,
    action=Action.INVESTIGATE,
    summary="The recorder was off.",
    headline="The dumps hold no entries: the flight recorder was off.",
    next=("TORCH_FR_BUFFER_SIZE=2000",),
)


def crowded(ranks: int) -> Verdict:
    """More of everything than fits one screen, in a job of this size."""
    deep = tuple(Frame(f"layer_{n}", f"{TRAINER}{'deep/' * 20}model.py", n) for n in range(50))
    cohorts = tuple(
        Cohort(
            tuple(range(n, ranks, 7)), Role.WAITING, "all_to_all", ((4096, 8),) * 64, ("Float",) * 64, None, deep, "x"
        )
        for n in range(7)
    )
    group = ProcessGroup("0", "default_pg", tuple(range(ranks)))
    finding = replace(
        FINDING,
        evidence=tuple(Evidence("f" * 300, n, f"entry {n}", "says " * 100) for n in range(1000)),
        suspects=tuple(range(0, ranks, 2)),
        fixes=(Fix("repair " * 60),) * 5,
        probes=(Probe("probe " * 60, "here " * 60),) * 5,
    )
    others = tuple(replace(finding, cause=cause) for cause in Cause)
    return replace(
        FOUND,
        suspects=finding.suspects,
        summary="word " * 500,
        divergence=replace(DIVERGENCE, group=group, cohorts=cohorts, first_visible_seq=20, hang_seq=30),
        coverage=Coverage(ranks, ranks, ranks, ranks, ("note " * 50,) * 100),
        findings=(finding, *others),
        sites=(Site("s" * 200, 1, "f" * 200, "c" * 200, "w" * 200, 0),) * 9,
        next=("command " * 60,) * 9,
        hypotheses=(
            replace(
                STALLED, against=(), says="says " * 100, sides=(tuple(range(0, ranks, 2)),) * 9, repair="had " * 200
            ),
        )
        * 6,
        moments=(replace(ISSUED, ranks=tuple(range(0, ranks, 3)), says="says " * 100),) * 200,
    )


T = TypeVar("T")

_TEXT = st.text(st.characters(), max_size=60)
_MAYBE_TEXT = st.none() | _TEXT
_COUNT = st.integers(0, 2**40)
_RANKS = st.lists(st.integers(0, 5000), max_size=40, unique=True).map(lambda ranks: tuple(sorted(ranks)))
_CONFIDENCE = st.floats(0, 1)


def _tuples(items: st.SearchStrategy[T], max_size: int = 4) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=max_size).map(tuple)


_STACKS = _tuples(st.builds(Frame, _TEXT, _TEXT, _COUNT), 40)
_COHORTS = st.builds(
    Cohort,
    _RANKS,
    st.sampled_from(Role),
    _MAYBE_TEXT,
    _tuples(_tuples(_COUNT)),
    _tuples(_TEXT),
    st.none() | st.sampled_from(OpState),
    st.none() | _STACKS,
    _MAYBE_TEXT,
)
_DIVERGENCES = st.builds(
    Divergence,
    st.sampled_from(PartingKind),
    st.builds(ProcessGroup, _TEXT, _TEXT, _RANKS),
    st.none() | st.tuples(_COUNT, _COUNT),
    st.none() | _COUNT,
    st.none() | _COUNT,
    st.none() | _COUNT,
    _tuples(_COHORTS, 6),
    odd=_RANKS,
    sides=_tuples(_RANKS),
    cycle=_RANKS,
)
_FINDINGS = st.builds(
    Finding,
    detector=_TEXT,
    cause=st.sampled_from(Cause),
    suspects=_RANKS,
    confidence=_CONFIDENCE,
    summary=_TEXT,
    action=st.sampled_from(Action),
    evidence=_tuples(st.builds(Evidence, _TEXT, st.none() | _COUNT, _TEXT, _TEXT), 10),
    divergence=st.none(),
    probes=_tuples(st.builds(Probe, _TEXT, _MAYBE_TEXT, _MAYBE_TEXT)),
    fixes=_tuples(st.builds(Fix, _TEXT, _MAYBE_TEXT)),
    next=_tuples(_TEXT),
)
_HYPOTHESES = st.builds(
    Hypothesis,
    cause=st.sampled_from(Cause),
    suspects=_RANKS,
    says=_TEXT,
    decides=_TEXT,
    likelihood=st.sampled_from(Likelihood),
    alternatives=_tuples(st.sampled_from(Cause)),
    sides=_tuples(_RANKS),
    supports=_tuples(st.builds(Evidence, _TEXT, st.none() | _COUNT, _TEXT, _TEXT)),
    lacks=_tuples(_TEXT),
    divergence=st.none() | _DIVERGENCES,
    repair=_MAYBE_TEXT,
    steps=_tuples(_TEXT),
)
_MOMENTS = st.builds(
    Moment,
    when=_MAYBE_TEXT,
    until=_MAYBE_TEXT,
    bound=st.booleans(),
    utc=_MAYBE_TEXT,
    clock=_TEXT,
    source=st.sampled_from(Source),
    kind=_TEXT,
    ranks=_RANKS,
    host=_MAYBE_TEXT,
    says=_TEXT,
    evidence=st.builds(Evidence, _TEXT, st.none() | _COUNT, _TEXT, _TEXT),
)
VERDICTS = st.builds(
    Verdict,
    symptom=st.none() | st.sampled_from(Symptom),
    cause=st.sampled_from(Cause),
    confidence=_CONFIDENCE,
    action=st.sampled_from(Action),
    suspects=_RANKS,
    summary=_TEXT,
    divergence=st.none() | _DIVERGENCES,
    coverage=st.builds(Coverage, _COUNT, _COUNT, _COUNT, _COUNT, _tuples(_TEXT)),
    findings=_tuples(_FINDINGS),
    sites=_tuples(st.builds(Site, _TEXT, st.integers(1, 10**6), _TEXT, _MAYBE_TEXT, _MAYBE_TEXT, st.none() | _COUNT)),
    next=_tuples(_TEXT),
    hypotheses=_tuples(_HYPOTHESES),
    moments=_tuples(_MOMENTS, 10),
)
