"""Decides between open readings by what ranks printed: the side of which all ranks, and no others, printed something
else.

Recorded calls and stacks show who may have left the others; a line in which exactly those ranks differ shows who did.
Neither is enough alone: programs print much that differs and does not matter.
"""

import re
from dataclasses import replace

from forkpoint.judge.facts.blame import uses_gloo
from forkpoint.judge.facts.calls import with_beside
from forkpoint.judge.facts.cite import LIKELY, verb
from forkpoint.judge.facts.contrast import Contrast, find_contrast, without_times
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.facts.stacks import find_standings, is_waiting_for_ranks
from forkpoint.judge.facts.symptom import hang_is_shown
from forkpoint.model.headline import first_words, plain_ranks
from forkpoint.model.incident import Divergence, Incident
from forkpoint.model.verdict import Action, Cause, Finding, Hypothesis

_LEAVES = re.compile(
    r"\b(?:stop(?:s|ped|ping)?|finish(?:es|ed|ing)?|leav(?:es|ing)|exit(?:s|ing)?|done|skip(?:s|ped|ping)?|early|used up|exhausted"
    r"|no more|giv(?:es|ing) up)\b",
    re.IGNORECASE,
)
_ACTIONS = {
    Cause.DIVERGENT_PATH: Action.FIX_CODE,
    Cause.METADATA_MISMATCH: Action.FIX_CODE,
    Cause.HOST_STALL: Action.FIX_CODE_OR_STORAGE,
}


def name_by_lines(best: Finding, hypotheses: tuple[Hypothesis, ...], incident: Incident) -> Finding:
    """The finding with the ranks that their lines name; unchanged if they name nobody."""
    if best.suspects or best.cause is Cause.HEALTHY or not hang_is_shown(incident):
        return best
    decided = best.cause is not Cause.INCONCLUSIVE
    open_readings = [h for h in hypotheses if h.cause is best.cause or not decided]
    sides = [
        with_beside(side, h.divergence, incident) for h in open_readings for side in h.sides or (h.suspects,) if side
    ]
    contrast = find_contrast(sides, incident)
    if contrast is None or (contrast.usual is None and _is_of_part(best.divergence or incident.divergence, incident)):
        return best
    if decided:
        return _named(best, contrast, best.summary)
    cause = _cause(contrast, incident)
    reading = next((h for h in open_readings if _may_mean(h, cause, contrast.ranks)), None)
    if cause is None or reading is None or _may_be_order(cause, contrast, open_readings):
        return best
    finding = replace(
        best,
        detector=cause.value,
        cause=cause,
        action=_ACTIONS[cause],
        divergence=reading.divergence or best.divergence,
    )
    return _named(finding, contrast, reading.says)


def _is_of_part(divergence: Divergence | None, incident: Incident) -> bool:
    """Ranks part in a group that is not the whole job: ranks of other groups may have done the same, unseen, so a line
    that they lack proves nothing about it.
    """
    return divergence is not None and not set(divergence.group.ranks) >= set(incident.timeline.world)


def _named(finding: Finding, contrast: Contrast, summary: str) -> Finding:
    words, who = first_words(without_times(contrast.own)), plain_ranks(contrast.ranks)
    did = {
        Cause.HOST_STALL: f"{verb(contrast.ranks, 'is', 'are')} stuck on {verb(contrast.ranks, 'its host', 'their hosts')}",
        Cause.METADATA_MISMATCH: "used other arguments than the others",
    }.get(finding.cause, "left the path of the others")
    return replace(
        finding,
        suspects=contrast.ranks,
        confidence=LIKELY,
        summary=f"{summary}; {contrast.told}",
        evidence=tuple(dict.fromkeys((*contrast.evidence, *finding.evidence))),
        headlines=(
            *((f'{who} {did}: only {verb(contrast.ranks, "it", "they")} logged "{words}"',) if words else ()),
            f"{who} {did}, by what only {verb(contrast.ranks, 'it', 'they')} logged",
        ),
    )


def _may_be_order(cause: Cause, contrast: Contrast, readings: list[Hypothesis]) -> bool:
    """What they printed shows who did something else; not whether they skipped a call or made it later."""
    at_calls = cause in (Cause.DIVERGENT_PATH, Cause.METADATA_MISMATCH)
    return at_calls and any(_may_mean(reading, Cause.ORDER_INVERSION, contrast.ranks) for reading in readings)


def _may_mean(reading: Hypothesis, cause: Cause | None, ranks: tuple[int, ...]) -> bool:
    return cause in (reading.cause, *reading.alternatives) and ranks in (reading.suspects, *reading.sides)


def _cause(contrast: Contrast, incident: Incident) -> Cause | None:
    """The cause, judged by where ranks are; None if that is not seen. Data of another size came from another call if
    those who waited for it were in a call whose sizes torch chooses for all ranks alike, or if the rank logs that it
    leaves.
    """
    standings, ranks = find_standings(incident), contrast.ranks
    if refused_sizes(incident):
        others = [one for rank, one in standings.items() if rank not in ranks]
        path = bool(others) and not any(one.brings_sizes for one in others)
        return Cause.DIVERGENT_PATH if path or _LEAVES.search(contrast.own) else Cause.METADATA_MISMATCH
    pending = incident.timeline.stands
    inside = [r in pending or (r in standings and is_waiting_for_ranks(standings[r].stack)) for r in ranks]
    if all(inside):
        return Cause.DIVERGENT_PATH
    outside = len(ranks) == 1 and ranks[0] in standings and not any(inside)
    others = [is_waiting_for_ranks(one.stack) for rank, one in standings.items() if rank not in ranks]
    # On a GPU, any line of the program may wait for a call that others do not finish.
    return Cause.HOST_STALL if outside and uses_gloo(incident) and len(others) > 1 and all(others) else None
