"""Recorded cases with what really happened, as the folders in cases/ are: capture/, source/ and case.toml."""

import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.model.verdict import Cause


@dataclass(frozen=True, slots=True)
class TrueLines:
    """Lines of source, any of which is right."""

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Truth:
    """Every answer that a careful person could give from the evidence."""

    healthy: bool
    group: str | None
    """Of the fork point. None: not written down, and the seq alone counts."""
    seqs: tuple[int, ...]
    """Empty: the evidence cannot show it."""
    suspects: tuple[tuple[int, ...], ...]
    """An empty answer means that no rank should be named."""
    places: tuple[TrueLines, ...]
    """Empty: no line of the source is at fault."""


@dataclass(frozen=True, slots=True)
class KnownCase:
    name: str
    capture: Path
    source: Path | None
    fault: str
    """What the lab broke; empty where a program was broken by hand."""
    truth: Truth


def read_known(folder: Path, only: Collection[str] = ()) -> tuple[KnownCase, ...]:
    """In the order of their names. Raises before anything is asked of a model."""
    found = sorted(path.parent for path in folder.glob("*/case.toml") if (path.parent / "capture").is_dir())
    if not found:
        raise UsageError(
            f"{folder}: holds no recorded case (NAME/case.toml and NAME/capture/); name the folder of cases"
        )
    unknown = sorted(set(only) - {path.name for path in found})
    if unknown:
        raise UsageError(
            f"{folder}: holds no case {', '.join(unknown)}; its cases are {found[0].name} to {found[-1].name}"
        )
    return tuple(_read(path) for path in found if not only or path.name in only)


def _read(folder: Path) -> KnownCase:
    path = folder / "case.toml"
    try:
        facts = tomllib.loads(path.read_text("utf-8"))
        return KnownCase(
            name=folder.name,
            capture=folder / "capture",
            source=folder / "source" if (folder / "source").is_dir() else None,
            fault=str(facts.get("fault", "")),
            truth=_truth(facts["truth"]),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableInput(f"{path}: does not say the truth of a case ({error}); see cases/README.md") from error


def _truth(told: dict[str, Any]) -> Truth:
    causes: Sequence[str] = [told["cause"]] if isinstance(told["cause"], str) else told["cause"]
    return Truth(
        healthy=Cause(causes[0]) is Cause.HEALTHY,
        group=told.get("group"),
        seqs=tuple(told.get("seq", ())),
        suspects=tuple(tuple(sorted(answer)) for answer in told["suspects"]) or ((),),
        places=tuple(_places(told.get("site", ()))),
    )


def _places(sites: Sequence[dict[str, Any]]) -> Iterator[TrueLines]:
    for site in sites:
        first, last = site["lines"]
        yield TrueLines(site["file"], first, last)
