"""A failure and what its evidence shows -> the verdict.

The engine's answer stands where it has one. What the controller saw itself decides where it has not: that a process
ended, and that ranks came back from one call with unequal counters.
"""

from dataclasses import replace

from forkpoint.controller.failure import CallFailure
from forkpoint.detectors.confidence import STRONG
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Coverage, Evidence, Finding, Fix, Symptom, Verdict

NAME = "controller"
_UNDECIDED = (Cause.HEALTHY, Cause.INCONCLUSIVE)


def conclude(failure: CallFailure, seen: Verdict | None, cited: tuple[Evidence, ...]) -> Verdict:
    """`seen`: the engine's answer; `cited`: the facts of the failure."""
    own = _own_finding(failure, cited)
    if failure.limit_s is not None and not failure.still:
        return _stand_on(own, failure, None)  # ranks were on their way: where they stood at one moment says nothing
    contradicted = own.cause is Cause.RANK_LOST and seen is not None and seen.suspects != own.suspects
    if seen is None or seen.cause in _UNDECIDED or contradicted:
        return _stand_on(own, failure, seen)
    best = replace(seen.findings[0], evidence=(*seen.findings[0].evidence, *cited))
    return replace(seen, summary=_sentence(failure, seen.summary), findings=(best, *seen.findings[1:]))


def _stand_on(own: Finding, failure: CallFailure, seen: Verdict | None) -> Verdict:
    others = seen.findings if seen else ()
    return Verdict(
        symptom=_symptom(failure),
        cause=own.cause,
        confidence=own.confidence,
        action=own.action,
        suspects=own.suspects,
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
    return Finding(NAME, Cause.INCONCLUSIVE, (), 0.0, f"{facts}; that does not decide why", action, cited)


def _lost(failure: CallFailure, cited: tuple[Evidence, ...]) -> Finding:
    lost = failure.lost
    return Finding(
        detector=NAME,
        cause=Cause.RANK_LOST,
        suspects=(lost.rank,) if lost else (),
        confidence=STRONG,
        summary=_tell_lost(failure),
        action=Action.REPLACE_OR_RETRY,
        evidence=cited,
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
        summary=f"ranks did not issue the same collectives {split}; results are silently wrong from there on",
        action=Action.FIX_CODE,
        evidence=cited,
        fixes=(
            Fix("decide alike on all ranks, or return the value and decide in the controller, before the next call"),
        ),
    )


def _all_raised(failure: CallFailure) -> bool:
    return len(failure.raised) == failure.size and len({raised.error for raised in failure.raised}) == 1


def _symptom(failure: CallFailure) -> Symptom:
    if failure.raised or failure.dead:
        return Symptom.ERROR
    return Symptom.SILENT_HANG if failure.still else Symptom.NO_HANG


def _sentence(failure: CallFailure, text: str) -> str:
    return f"In {failure.name}: {text[0].lower()}{text[1:]}{'' if text.endswith('.') else '.'}"
