"""Incidents that others recorded, scored against their truth: `python -m property.foreign DIR... [--variants 20]`.

A folder holds incidents as `NN/capture`, `NN/source` and `NN/truth.json`: `category` (a cause, or those that are right), `culprits` (lists of
ranks that are right), `world`, `site` (`[file, first line, last line]`), `decidable` ("all", or what an expert cannot decide from these files).
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forkpoint
from cases import Case
from forkpoint.errors import UnreadableInput
from forkpoint.model.verdict import Verdict
from property.sweep import WRONG, is_among, score, sweep


@dataclass(frozen=True, slots=True)
class Scored:
    case: Case
    what: str
    is_among: bool
    """Where nothing is decided: the truth is among the first two hypotheses."""
    first_site: bool | None
    """None where the truth has no place in the source."""
    verdict: Verdict | None


def load_incidents(folder: Path) -> tuple[Case, ...]:
    return tuple(_load(one) for one in sorted(folder.iterdir()) if (one / "truth.json").is_file())


def _load(folder: Path) -> Case:
    truth = json.loads((folder / "truth.json").read_text())
    named = truth["category"]
    return Case(
        number=f"{folder.parent.name}/{folder.name}",
        capture=folder / "capture",
        causes=tuple(named) if isinstance(named, list) else (named,),
        suspects=tuple(tuple(sorted(answer)) for answer in truth["culprits"]) or ((),),
        seqs=(),
        symptoms=(),
        actions=(),
        group=None,
        world=truth["world"],
        layout="",
        backend="",
        timing=False,
        short_of=None if truth.get("decidable", "all") == "all" else truth["decidable"],
    )


def score_incident(case: Case, *, source: bool) -> Scored:
    folder = case.capture.parent
    program = folder / "source"
    given = [str(program)] if source and program.is_dir() else []
    try:
        verdict = forkpoint.diagnose(forkpoint.read([str(case.capture)]), source=given)
    except UnreadableInput:
        return Scored(case, "unreadable", is_among=False, first_site=None, verdict=None)
    what = score(verdict, case)
    if what == "inconclusive" and "inconclusive" in case.causes:
        what = "right"
    truth = json.loads((folder / "truth.json").read_text())
    return Scored(case, what, is_among(verdict, case), _is_right_site(verdict, truth.get("site") or []), verdict)


def _is_right_site(verdict: Verdict, places: list[list[Any]]) -> bool | None:
    if not places:
        return None
    first = verdict.sites[0] if verdict.sites else None
    return first is not None and any(
        Path(first.file).name == Path(file).name and low <= first.line <= high for file, low, high in places
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--no-source", action="store_true", help="judge the evidence alone")
    parser.add_argument("--variants", type=int, default=0, help="damaged variants of each incident, without its source")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = [case for folder in options.folders for case in load_incidents(folder)]
    scored = [score_incident(case, source=not options.no_source) for case in cases]
    for one in scored:
        print(_row(one))
    _print_counts(scored)
    if options.variants:
        _print_variants(tuple(cases), options.variants, options.seed)


def _row(one: Scored) -> str:
    verdict = one.verdict
    among = " (among the first two)" if one.what == "inconclusive" and one.is_among else ""
    site = {True: "site right", False: "site wrong", None: "no site"}[one.first_site]
    truth = (
        f"{'/'.join(one.case.causes)} {[list(s) for s in one.case.suspects]} decidable: {one.case.short_of or 'all'}"
    )
    said = f"{verdict.cause} {list(verdict.suspects)} {verdict.confidence}: {verdict.headline}" if verdict else ""
    return f"{one.case.number}  {one.what}{among}; {site}\n    truth: {truth}\n    says:  {said}"


def _print_counts(scored: list[Scored]) -> None:
    decided = [one for one in scored if one.case.short_of is None]
    for name, rows in (("all", scored), ("of which an expert decides", decided)):
        counts = Counter(one.what for one in rows)
        undecided = [one for one in rows if one.what == "inconclusive"]
        sites = [one.first_site for one in rows if one.first_site is not None]
        print(f"{name}: {len(rows)}; {dict(counts.most_common())}")
        print(
            f"    undecided with the truth in the first two: {sum(one.is_among for one in undecided)} of {len(undecided)}"
        )
        print(f"    first site right: {sum(sites)} of {len(sites)}")


def _print_variants(cases: tuple[Case, ...], each: int, seed: int) -> None:
    counts: Counter[str] = Counter()
    for outcome in sweep(cases, each * len(cases), seed):
        counts[outcome.what] += 1
        if outcome.what in WRONG:
            print(f"{outcome.what}: {outcome.case} seed {outcome.seed}: {outcome.said}\n    {outcome.damage}")
    print(f"damaged variants: {dict(counts.most_common())}")


if __name__ == "__main__":
    main()
