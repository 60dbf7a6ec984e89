"""A filter keeps less of one rank's data.

What it does
    At the chosen run of one filter (a list comprehension with `if`, a loop that begins with `if ...: continue`) the
    chosen rank loses one element of what it would keep, or half of it.

Where it comes from
    An empty line, a document that is too long, an unreadable picture, in one rank's shard. SpeechBrain and fairseq
    filter by length, TRL by tokens; if each rank filters its own shard, the lengths differ from then on.

When it can happen
    Where a filter reads at least sixteen items of plain data (texts, numbers, records) that differed between ranks in the calm
    run, and uses neither the rank nor other ranks. A list that was the same on all ranks stays the same.

A healthy program
    Filters before it shares out the data, agrees on the number of rounds, or exchanges sizes before data.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Perturbation

_LEAST: Final = 16


def find(calm: Calm, decisions: Decisions) -> Iterator[TrialTarget]:
    for by_rank in calm.uses(UseKind.FILTER).values():
        uses = list(by_rank.values())
        if not all(map(_is_data, uses)) or not _is_own(uses) or not decisions.filters_alone(uses[0].site):
            continue
        target = TrialTarget(uses[0].site, tuple(sorted(by_rank)), uses[0].what, min(use.count for use in uses))
        for lost in ("one", "half"):
            yield replace(target, settings={"lost": lost}, label=f"{lost} of {int(uses[0].facts['least'])}")


def _is_data(use: Use) -> bool:
    return use.facts.get("plain") == "1" and int(use.facts.get("least", "0")) >= _LEAST


def _is_own(uses: list[Use]) -> bool:
    """The fingerprints of the filtered data differ between ranks."""
    compared = min(len(use.values) for use in uses)
    return len(uses) > 1 and any(use.values[:compared] != uses[0].values[:compared] for use in uses)


class _Fewer(Disturbance):
    def kept(self, site: CodeSite, values: list[Any]) -> list[Any]:
        if not self.is_here(site, "list") or not self.is_now() or len(values) < 2:
            return values
        left = values[:-1] if self.settings["lost"] == "one" else values[: len(values) // 2]
        self.say(f"a filter kept {len(left)} of its items, {len(values) - len(left)} fewer", site)
        return left

    def each(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        if not self.is_here(site, "loop") or not self.is_now():
            return values
        return self._without(site, values)

    def _without(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        """Drops the first, or every other one."""
        for number, value in enumerate(values):
            if number == 0 or (number % 2 == 0 and self.settings["lost"] == "half"):
                self.say("a filter dropped one of its items", site)
            else:
                yield value


def _install(inside: InsideRank) -> Disturbance:
    return _Fewer(inside)


PERTURBATION = Perturbation(
    "one-sample-fewer", "data that a filter drops", find, _install, "no filter reads data that differs by rank"
)
