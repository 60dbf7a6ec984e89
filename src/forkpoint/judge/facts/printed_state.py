"""Finds replicas that no longer hold the same model, by the numbers that training code prints, and ranks that started from
another checkpoint.

    [1] restored /ckpt/rank1/step_000060      [1] step 70 grad_norm 0.53964 param_norm 2.449304
    [3] restored /ckpt/rank3/step_000040      [3] step 70 grad_norm 0.53964 param_norm 2.424518

Ranks that print the same gradient norm at every step reduce their gradients together: they are replicas, and should hold
the same parameters. Those of shards, stages or experts differ in both.
"""

import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from forkpoint.judge.facts.contrast import find_printed
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import PrintedLine
from forkpoint.model.verdict import Cause, Evidence, Hypothesis
from forkpoint.model.world import name_ranks

_STEP = re.compile(r"\b(?:global_)?(?:step|iter|iteration)[\"']?[ :=#]{1,2}(\d{1,9})\b", re.IGNORECASE)
_EPOCH = re.compile(r"\bepoch[\"']?[ :=#]{1,2}(\d{1,9})\b", re.IGNORECASE)
_VALUE = re.compile(
    r"(?:\b([a-z]\w{2,30})[\"']?|(\|[a-z]\w{0,20}\|))[ :=]{1,3}([-+]?\d{1,12}\.\d{3,12}(?:e[+-]?\d{1,3})?)\b",
    re.IGNORECASE,
)
_OF_GRADIENTS = re.compile(r"grad", re.IGNORECASE)
_OF_STATE = re.compile(
    r"^(?!.*(?:grad|loss|decay|update)).*(?:param|weight|model|^[wp]_?norm$|^\|[wp]\|$)", re.IGNORECASE
)
_LEAST_STEPS = 2
_RESTORED = re.compile(r"\b(?:restor|resum|load)(?:e|es|ed|ing)?\b.{0,300}", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"(?:step|iter|iteration|epoch|ckpt|checkpoint)[ _:=#/-]{0,3}0{0,12}(\d{1,12})(?!\d)", re.IGNORECASE
)
_LEAST_RANKS = 3

_Steps = dict[int, dict[int, str]]
"""What was printed, by step, then by rank."""


class OddRestored(Struct, frozen=True):
    """Some ranks started from another checkpoint than the rest."""

    ranks: tuple[int, ...]
    """Empty if neither checkpoint is the majority's."""
    own: str
    usual: str
    evidence: tuple[Evidence, ...]

    @property
    def told(self) -> str:
        if not self.ranks:
            return f"some ranks began from checkpoint {self.own}, others from {self.usual}"
        return f"{name_ranks(self.ranks)} began from checkpoint {self.own}, all others from {self.usual}"

    @property
    def reading(self) -> Hypothesis:
        return Hypothesis(
            Cause.SILENT_CORRUPTION,
            self.ranks,
            f"{self.told}: unless states were made equal after that, they train different models",
            "print a checksum of the parameters on every rank right after a checkpoint is loaded",
            supports=self.evidence,
            plain=self.told,
            asks="a checksum of the parameters on every rank",
        )


class PartedReplicas(Struct, frozen=True):
    ranks: tuple[int, ...]
    """Replicas of each other."""
    odd: tuple[int, ...]
    """Those that started from another checkpoint than all others, or that never agree with the rest, which always agree; empty if
    nothing says so.
    """
    name: str
    step: int
    evidence: tuple[Evidence, ...]
    why: str = ""
    """What else shows that they are replicas of each other."""


@fact
def find_odd_restored(incident: Incident) -> OddRestored | None:
    """Among the ranks that log where they started from; None if fewer than three do. Nobody is named if one of them is
    not known.
    """
    told: dict[int | str, tuple[tuple[str, ...], Evidence]] = {}
    for file, rank, line in (*find_printed(incident), *_printed_by_unknown(incident)):
        said = _RESTORED.search(line.text)
        numbers = tuple(_CHECKPOINT.findall(said[0])) if said else ()
        if numbers:
            told.setdefault(file if rank is None else rank, (numbers, _cite(file, rank, line)))
    counts = Counter(numbers for numbers, _ in told.values()).most_common()
    if len(told) < _LEAST_RANKS or len(counts) != 2 or len(counts[0][0]) != len(counts[1][0]):
        return None  # all alike; or each rank counts something of its own
    (usual, times), (own, few) = counts
    odd = [who for who, (numbers, _) in told.items() if numbers == own]
    other = next(who for who in told if who not in odd)
    ranks = tuple(sorted(who for who in odd if isinstance(who, int)))
    unheard = len(set(incident.timeline.world) - told.keys()) + incident.timeline.unseen
    named = ranks if len(ranks) == len(odd) and times > few + unheard else ()
    return OddRestored(named, " ".join(own), " ".join(usual), (told[odd[0]][1], told[other][1]))


def _printed_by_unknown(incident: Incident) -> Iterator[tuple[str, None, PrintedLine]]:
    """From logs whose rank is not known."""
    nobodys = {file for file, rank in incident.capture.logs if rank is None}
    for file in sorted(nobodys & incident.capture.printed.keys()):
        yield from ((file, None, line) for line in incident.capture.printed[file] if line.rank is None)


def _cite(file: str, rank: int | None, line: PrintedLine) -> Evidence:
    return Evidence(file, rank, f"line {line.line}", line.text)


@fact
def find_parted_replicas(incident: Incident) -> PartedReplicas | None:
    """The only replicas whose parameters differ at every step, if other replicas print equal ones: that shows that the
    printed number is one on which replicas agree.
    """
    values, cited = _read_values(incident)
    for state in filter(_OF_STATE.search, values):
        everyone = tuple(sorted({rank for said in values[state].values() for rank in said}))
        agreed = next((n for n, steps in values.items() if n != state and _is_agreed(everyone, steps)), None)
        began, later = _since_parted(everyone, values[state])
        few = _outvoted(everyone, later) if agreed or began else ()
        if few:
            step = min(later)
            shown = [cited[state, rank, step] for rank in (*few[:1], *everyone) if (state, rank, step) in cited]
            why = f"while all print the same {agreed}" if agreed else "and all printed the same before"
            return PartedReplicas(everyone, few, state, step, tuple(dict.fromkeys(shown))[:3], why)
    for gradients in filter(_OF_GRADIENTS.search, values):
        for state in filter(_OF_STATE.search, values):
            replicas, held = _alike(values[gradients]), _alike(values[state])
            together = [side for side in replicas if len(side) > 1]
            parted = [side for side in together if side not in held and _never_agree(side, values[state])]
            if len(parted) == 1 and all(side in held for side in together if side not in parted) and len(together) > 1:
                odd = find_odd_restored(incident)
                named = odd.ranks if odd and set(odd.ranks) <= set(parted[0]) else ()
                step = min(values[state])
                shown = [cited[state, rank, step] for rank in parted[0] if (state, rank, step) in cited]
                return PartedReplicas(parted[0], named, state, step, tuple(shown[:3]))
    return None


def _is_agreed(ranks: tuple[int, ...], steps: _Steps) -> bool:
    """All of them print the same number at each step, and another one at the next: they compute it together, as a mean loss."""
    told = [set(said.values()) for said in steps.values() if said.keys() >= set(ranks)]
    return len(told) >= _LEAST_STEPS and all(len(one) == 1 for one in told) and len(set.union(*told)) == len(told)


def _since_parted(ranks: tuple[int, ...], steps: _Steps) -> tuple[bool, _Steps]:
    """Whether all printed the same at first, and what they printed from the first difference on."""
    shared = [step for step, said in sorted(steps.items()) if said.keys() >= set(ranks)]
    parted = next((step for step in shared if len(set(steps[step].values())) > 1), None)
    began = parted is not None and shared[0] < parted
    return began, {step: said for step, said in steps.items() if parted is not None and step >= parted}


def _outvoted(ranks: tuple[int, ...], steps: _Steps) -> tuple[int, ...]:
    """The few that never agree with the rest, which always agree. Shards would differ from each other, too, or be equally many of
    each.
    """
    held = _alike(steps)
    usual = max(held, key=len, default=())
    odd = tuple(rank for rank in ranks if rank not in usual)
    apart = bool(usual) and all(_never_agree((rank, usual[0]), steps) for rank in odd)
    return odd if apart and odd and len(ranks) >= _LEAST_RANKS and len(usual) > len(odd) + 1 else ()


def _read_values(incident: Incident) -> tuple[dict[str, _Steps], dict[tuple[str, int, int], Evidence]]:
    found: dict[str, _Steps] = {}
    cited: dict[tuple[str, int, int], Evidence] = {}
    for file, rank, line in find_printed(incident):
        if step := _STEP.search(line.text) or _EPOCH.search(line.text):
            for plain, barred, value in _VALUE.findall(line.text):
                name = plain or barred
                found.setdefault(name, {}).setdefault(int(step[1]), {})[rank] = value
                cited[name, rank, int(step[1])] = _cite(file, rank, line)
    return found, cited


def _alike(steps: _Steps) -> list[tuple[int, ...]]:
    """Ranks that printed the same at every step that all of them printed; nothing if there are few such steps."""
    ranks = sorted({rank for said in steps.values() for rank in said})
    shared = [said for _, said in sorted(steps.items()) if len(said) == len(ranks)]
    sides: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks:
        sides.setdefault(tuple(said[rank] for said in shared), []).append(rank)
    return [tuple(side) for side in sides.values()] if len(shared) >= _LEAST_STEPS else []


def _never_agree(side: tuple[int, ...], steps: _Steps) -> bool:
    """A number that differs only at some steps is rounded, or printed at another moment."""
    return all(
        len({said[rank] for rank in side if rank in said}) > 1 for said in steps.values() if set(side) <= said.keys()
    )
