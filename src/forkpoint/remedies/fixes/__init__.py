"""Fixes, one per file: a patch if the pattern is known and the change is safe, else words."""

from collections.abc import Callable, Sequence

from forkpoint.model.verdict import Fix
from forkpoint.remedies.fixes import (
    agree_on_decision,
    agree_on_root,
    agree_on_rounds,
    call_on_all_ranks,
    in_words,
    pad_before_gather,
    raise_together,
    sort_first,
)
from forkpoint.remedies.scene import Scene
from forkpoint.source.bridge.fork import SURE, Fork, ForkKind

FIXES: tuple[Callable[[Fork, Scene], Fix | None], ...] = (
    call_on_all_ranks.offer,
    agree_on_decision.offer,
    agree_on_rounds.offer,
    sort_first.offer,
    raise_together.offer,
    pad_before_gather.offer,
    agree_on_root.offer,
    in_words.offer,
)
"""For a fork, the first that fits."""
_MOST = 3
_GUESSED = frozenset({ForkKind.LOOP, ForkKind.SKIPPED, ForkKind.LEFT})
"""Kinds that rest on a condition."""


def offer_fixes(forks: Sequence[Fork], scene: Scene) -> tuple[Fix, ...]:
    """One for each fork that explains the divergence as well as the first one; patches before words.

    Words alone where nothing shows why a condition would differ: the change would go to a guess.
    """
    equal = [fork for fork in forks if fork.confidence == forks[0].confidence][:_MOST]
    found = [next(f for offer in _offers(fork) if (f := offer(fork, scene))) for fork in equal]
    return tuple(sorted(dict.fromkeys(found), key=lambda fix: fix.patch is None))


def _offers(fork: Fork) -> Sequence[Callable[[Fork, Scene], Fix | None]]:
    known = fork.reasons or fork.confidence > SURE
    return FIXES if known or fork.kind not in _GUESSED else (in_words.offer,)
