"""Forks -> probes that would confirm them, and fixes: as patches where that is safe, else in words.

A file per kind of mistake has its probes and fixes; they are listed here by hand. A patch is made from the bytes of the file,
applies with `git apply` in the source root, and leaves a file that parses. Patches are independent: apply one at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from forkpoint.model.incident import Divergence
from forkpoint.model.verdict import Cause, Fix, Probe, Verdict
from forkpoint.remedies.argument import agree_on_root, compare_arguments, pad_before_gather
from forkpoint.remedies.collective import call_on_all_ranks, see_who_arrives
from forkpoint.remedies.decision import agree_on_decision, compare_decisions
from forkpoint.remedies.exception import end_where_caught, raise_together
from forkpoint.remedies.in_words import fix_in_words
from forkpoint.remedies.loop import agree_on_rounds, compare_order, compare_rounds, sort_first
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.stuck_call import end_when_stuck
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.fork import SURE, Fork, ForkKind

__all__ = ["attach_remedies", "remedies"]

_PROBES: tuple[Callable[[Fork, Scene], Probe | None], ...] = (
    compare_decisions,
    compare_rounds,
    compare_order,
    compare_arguments,
    end_where_caught,
    end_when_stuck,
)
"""For a fork, the first that fits. `see_who_arrives` is a second one: it checks the collective, not the decision, so it also
works if the fork is not the cause."""
_FIXES: tuple[Callable[[Fork, Scene], Fix | None], ...] = (
    call_on_all_ranks,
    agree_on_decision,
    agree_on_rounds,
    sort_first,
    raise_together,
    pad_before_gather,
    agree_on_root,
    fix_in_words,
)
"""Likewise."""
_MOST = 3
_GUESSED = frozenset({ForkKind.LOOP, ForkKind.SKIPPED, ForkKind.LEFT})
"""Kinds that rest on a condition."""


def attach_remedies(verdict: Verdict, forks: Sequence[Fork], analysis: Analysis, roots: Sequence[str]) -> Verdict:
    """Put patches before the advice of the first finding. An undecided verdict gets none: the job may be correct."""
    if verdict.cause is Cause.INCONCLUSIVE or not verdict.findings:
        return verdict
    probes, fixes = remedies(forks, verdict.divergence, analysis, roots)
    best = verdict.findings[0]
    best = replace(best, probes=(*probes, *best.probes), fixes=(*fixes, *best.fixes))
    return replace(verdict, findings=(best, *verdict.findings[1:]))


def remedies(
    forks: Sequence[Fork], divergence: Divergence | None, analysis: Analysis, roots: Sequence[str]
) -> tuple[tuple[Probe, ...], tuple[Fix, ...]]:
    """`forks`: best first. `roots`: the folders or files that the program was read from.

    Each fork that explains the divergence as well as the first one gets a probe and a fix.
    """
    if not forks:
        return (), ()
    scene = Scene(divergence, analysis, tuple(roots))
    equal = [fork for fork in forks if fork.confidence == forks[0].confidence]
    return _probes(equal, scene), _fixes(equal[:_MOST], scene)


def _probes(forks: Sequence[Fork], scene: Scene) -> tuple[Probe, ...]:
    found = [next((p for offer in _PROBES if (p := offer(fork, scene))), None) for fork in forks]
    second = see_who_arrives(forks[0], scene)
    by_patch = {probe.patch: probe for probe in (*found[: _MOST - 1], second, *found[_MOST - 1 :]) if probe}
    return tuple(by_patch.values())[:_MOST]


def _fixes(forks: Sequence[Fork], scene: Scene) -> tuple[Fix, ...]:
    """Patches before words. Words alone where nothing shows why a condition would differ: the change would go to a guess."""
    found: list[Fix] = []
    for fork in forks:
        known = fork.reasons or fork.confidence > SURE or fork.kind not in _GUESSED
        found.append(next(f for offer in (_FIXES if known else (fix_in_words,)) if (f := offer(fork, scene))))
    return tuple(sorted(dict.fromkeys(found), key=lambda fix: fix.patch is None))
