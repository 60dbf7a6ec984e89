"""A failed call -> evidence in a folder -> the engine's verdict, completed by what the controller saw -> `StepFailed`.

The engine's verdict counts if it has one. Otherwise what the controller saw decides: that a process ended, or that ranks
returned from one call with unequal counters.
"""

from dataclasses import replace
from pathlib import Path

from forkpoint.controller.answers import CallFailure
from forkpoint.errors import ForkpointError
from forkpoint.judge.facts.cite import STRONG
from forkpoint.judge.telling.phrases import barest
from forkpoint.live.children import Diagnosed, Task, diagnose
from forkpoint.live.worker import read_verdict
from forkpoint.model.headline import fit_headline, with_endings
from forkpoint.model.verdict import Action, Cause, Coverage, Evidence, Finding, Fix, Symptom, Verdict
from forkpoint.model.world import KnownRank, name_ranks, render_ranks
from forkpoint.report.verdict_line import render_line

FACTS = "controller.txt"


def diagnose_failure(failure: CallFailure, folder: Path) -> Verdict | None:
    """Writes what ranks show to files, which are read and judged as those of any other job. None: there is nothing to read."""
    _write(failure, folder)
    found = diagnose(Task((str(folder),), with_value=True))
    return read_verdict(found.value) if isinstance(found, Diagnosed) and found.value else None


def cite_facts(failure: CallFailure, folder: Path) -> tuple[Evidence, ...]:
    """Writes the controller's own observations to a file that the verdict can cite."""
    path = folder / FACTS
    facts = failure.facts()
    path.write_text("".join(f"{failure.name}: {says}\n" for _, says in facts))
    return tuple(Evidence(str(path), rank, f"line {n}", says) for n, (rank, says) in enumerate(facts, 1))


def _write(failure: CallFailure, folder: Path) -> None:
    """A rank that raised has left the call, so its log is written and its dump is not."""
    gone = {raised.rank for raised in failure.raised}
    for seen in failure.testimony:
        if seen.dump and seen.rank not in gone:
            (folder / f"trace_rank_{seen.rank}").write_bytes(seen.dump)
        if seen.stacks:
            (folder / f"stacks_rank_{seen.rank}.txt").write_text(seen.stacks)
    for raised in failure.raised:
        (folder / f"log_rank_{raised.rank}.txt").write_text(raised.traceback)
    (folder / "ranks.json").write_text(_describe(failure))


def _describe(failure: CallFailure) -> str:
    """What dumps do not say: whose process ended, who belongs to a group, and a hang."""
    lost = [failure.lost] if failure.lost else []
    return render_ranks(
        failure.size,
        failure.limit_s / 2 if failure.limit_s else None,
        stalled=failure.still,
        ranks=[KnownRank(death.rank, "gone", death.how.removeprefix("its process ")) for death in lost],
        groups=sorted({group for seen in failure.testimony for group in seen.groups}),
    )


NAME = "controller"
_UNDECIDED = (Cause.HEALTHY, Cause.INCONCLUSIVE)


def conclude(failure: CallFailure, seen: Verdict | None, cited: tuple[Evidence, ...]) -> Verdict:
    """`seen`: the engine's answer; `cited`: the facts of the failure."""
    own = _own_finding(failure, cited)
    if failure.limit_s is not None and not failure.still:
        return _own_verdict(own, failure, None)  # ranks were still moving: a momentary picture says nothing
    contradicted = own.cause is Cause.RANK_LOST and seen is not None and seen.suspects != own.suspects
    if seen is None or seen.cause in _UNDECIDED or contradicted:
        return _own_verdict(own, failure, seen)
    best = replace(seen.findings[0], evidence=(*seen.findings[0].evidence, *cited))
    return replace(seen, summary=_sentence(failure, seen.summary), findings=(best, *seen.findings[1:]))


def _own_verdict(own: Finding, failure: CallFailure, seen: Verdict | None) -> Verdict:
    others = seen.findings if seen else ()
    return Verdict(
        symptom=_symptom(failure),
        cause=own.cause,
        confidence=own.confidence,
        action=own.action,
        suspects=own.suspects,
        headline=fit_headline(own.headlines, barest(own.cause, own.suspects)),
        summary=_sentence(failure, own.summary),
        divergence=seen.divergence if seen else None,
        coverage=seen.coverage if seen else Coverage(failure.size, 0, 0, 0),
        findings=(own, *others),
        sites=seen.sites if seen else (),
        next=seen.next if seen else (),
        moments=seen.moments if seen else (),
    )


def _own_finding(failure: CallFailure, cited: tuple[Evidence, ...]) -> Finding:
    if failure.dead:
        return _lost(failure, cited)
    if failure.splits and failure.counted:
        return _parted(failure, cited)
    facts = "; ".join(says for _, says in failure.facts()[:4])
    action = Action.FIX_CODE if failure.splits or _all_raised(failure) else Action.INVESTIGATE
    if failure.limit_s is not None and not failure.still:
        action = Action.RAISE_TIMEOUT
    told = with_endings(f"{failure.name} failed on some ranks", f": {facts}")
    return Finding(NAME, Cause.INCONCLUSIVE, (), 0.0, f"{facts}; that does not show why", action, cited, headlines=told)


def _lost(failure: CallFailure, cited: tuple[Evidence, ...]) -> Finding:
    lost = failure.lost
    return Finding(
        detector=NAME,
        cause=Cause.RANK_LOST,
        suspects=(lost.rank,) if lost else (),
        confidence=STRONG,
        summary=_tell_lost(failure),
        action=Action.INVESTIGATE,  # nothing shows that something outside the program ended it
        evidence=cited,
        headlines=with_endings(f"rank {lost.rank} is gone", f": {lost.how}" if lost.how else "") if lost else (),
        fixes=(Fix("find who ended it: its own exit, the kernel (dmesg), or the scheduler's memory limit"),),
    )


def _tell_lost(failure: CallFailure) -> str:
    told = [says for _, says in failure.facts()]
    if not (failure.lost and failure.raised):
        return "; ".join(told[:4])
    victims = name_ranks(raised.rank for raised in failure.raised)
    return f"{'; '.join(told[: len(failure.dead)][:3])}; {victims} failed in communication"


def _parted(failure: CallFailure, cited: tuple[Evidence, ...]) -> Finding:
    split = failure.splits[0]
    return Finding(
        detector=NAME,
        cause=Cause.DIVERGENT_PATH,
        suspects=split.odd,
        confidence=STRONG,
        summary=f"ranks did not issue the same collectives {split}; results are silently wrong from then on",
        action=Action.FIX_CODE,
        evidence=cited,
        fixes=(
            Fix("decide alike on all ranks, or return the value and decide in the controller, before the next call"),
        ),
        headlines=(f"ranks did not issue the same collectives {split}; results are wrong from then on",),
    )


def _all_raised(failure: CallFailure) -> bool:
    return len(failure.raised) == failure.size and len({raised.error for raised in failure.raised}) == 1


def _symptom(failure: CallFailure) -> Symptom:
    if failure.raised or failure.dead:
        return Symptom.ERROR
    return Symptom.SILENT_HANG if failure.still else Symptom.NO_HANG


def _sentence(failure: CallFailure, text: str) -> str:
    return f"In {failure.name}: {text[0].lower()}{text[1:]}{'' if text.endswith('.') else '.'}"


class StepFailed(ForkpointError):
    """A call did not succeed on every rank. The ranks are stopped when this is raised."""

    def __init__(self, verdict: Verdict, call: int, method: str, folder: str) -> None:
        super().__init__(f"{verdict.headline}\n{verdict.summary}\n{render_line(verdict)}\nEvidence: {folder}")
        self.verdict = verdict
        self.call = call
        """Calls are numbered from 1; 0 is the start."""
        self.method = method
        self.folder = folder
        """Dumps, stacks and tracebacks of the ranks, and what the controller saw. `forkpoint diagnose` reads it too."""
