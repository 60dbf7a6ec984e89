"""Plans the trials from what the calm run used, the most useful first."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.model import HASH_SEED, Calm, RankUses, Trial, TrialTarget
from forkpoint.rehearse.perturbation import Perturbation

_EARLY: Final = 3
"""An early disturbance is at one of the first three occasions: such a trial ends early."""


def plan_trials(
    calm: Calm, decisions: Decisions, perturbations: Sequence[Perturbation], ranks: Sequence[int] | None, seed: int
) -> tuple[Trial, ...]:
    """First one rank for each target, kind by kind in turn; then the other ranks. Trials that need a new process take as long as
    a few others, so for the other ranks they come last.
    """
    chosen = tuple(ranks) if ranks is not None else choose_ranks(calm)
    rounds = [[*_in_turn(calm, decisions, perturbations, chosen, turn)] for turn in range(len(chosen))]
    trials: list[Trial] = []
    tried: Counter[str] = Counter()
    planned = [(turn, *item) for turn, items in enumerate(rounds) for item in items]
    for turn, kind, rank, target in sorted(planned, key=lambda item: item[0] > 0 and HASH_SEED in item[3].settings):
        luck = random.Random(f"{seed}/{kind}/{target.site}/{target.label}/{rank}")  # noqa: S311 replayed, not secret
        moment = choose_moment(target, luck, early=(turn == 0) != calm.is_short, phase=tried[kind])
        trials.append(Trial(len(trials) + 1, kind, rank, target, moment, seed))
        tried[kind] += 1
    return tuple(trials)


def choose_moment(target: TrialTarget, luck: random.Random, *, early: bool, phase: int) -> int:
    """The occasion at which the disturbance begins. In a long job the first rank is disturbed early, and later ones in the middle
    of the run. In a short job, which runs to its end anyway, it is the other way round: a program that warms up, or compares a
    value with earlier ones, does not react to an early disturbance. The last occasion is avoided if there are several: ranks may
    have nothing left to disagree on. `phase`: trials of one kind are right before a step of the optimizer and elsewhere in turn,
    because a program that accumulates gradients communicates only there; at odd and even occasions if nothing is known of that.
    """
    early_ones, third, rhythm = max(_EARLY, target.per_step), target.occurrences // 3, max(2, target.per_step)
    if early or third <= early_ones:
        moments = range(min(early_ones, max(1, target.occurrences - 1)))
    else:
        moments = range(third, 2 * third)
    wanted = [moment for moment in moments if (moment % rhythm == rhythm - 1) == (phase % 2 == 0)]
    return luck.choice(wanted or moments)


def _in_turn(
    calm: Calm, decisions: Decisions, perturbations: Sequence[Perturbation], chosen: Sequence[int], turn: int
) -> Iterator[tuple[str, int, TrialTarget]]:
    by_kind = [
        [
            (p.kind, rank, target)
            for target in p.find(calm, decisions)
            if (rank := _rank_for(target, chosen, turn)) is not None
        ]
        for p in perturbations
    ]
    for row in zip_longest(*by_kind):
        yield from (item for item in row if item is not None)


def _rank_for(target: TrialTarget, chosen: Sequence[int], turn: int) -> int | None:
    """The `turn`-th of the chosen ranks that have the target. If none of them has it, the first rank that does."""
    ranks = [rank for rank in chosen if rank in target.ranks] or list(target.ranks[:1])
    return ranks[turn] if turn < len(ranks) else None


def choose_ranks(calm: Calm) -> tuple[int, ...]:
    """The middle rank, the first, the last, and one of every other role."""
    world = calm.world
    wanted = [world // 2, 0, world - 1]
    roles = {told.rank: _role(told) for told in calm.ranks}
    for rank, role in roles.items():
        if role not in {roles[known] for known in wanted}:
            wanted.append(rank)
    return tuple(dict.fromkeys(wanted))


def _role(told: RankUses) -> tuple[object, ...]:
    """What a rank does: the sizes of its groups, its positions in them, and the source lines it executes."""
    places = tuple((len(group), group.index(told.rank)) for group in told.groups if len(group) < told.world)
    return places, lines_of(told)


def lines_of(told: RankUses) -> frozenset[tuple[str, str, int]]:
    """The source lines at which a rank uses something of its own. Not what: each may have its own files."""
    return frozenset((use.kind, use.site.file, use.site.line) for use in told.uses if use.site.file)
