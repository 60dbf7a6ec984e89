"""A store as one self-contained page: incidents over time by cause, forks, nodes, hours lost, the newest incidents.

Like the page of a verdict, it opens from disk, loads nothing, and its policy allows only its own script. Everything from
the store is ASCII inside JSON.
"""

import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from forkpoint.history.nodes import NodeOdds, say_odds, to_confirm, weigh
from forkpoint.history.queries import (
    EVERYTHING,
    Bar,
    Filters,
    ListedIncident,
    RecurringFork,
    StoreTotals,
    bars,
    describe_resolution,
    host_exposures,
    list_incidents,
    top_forks,
    totals,
)
from forkpoint.history.store import Store
from forkpoint.report.escape import map_texts
from forkpoint.report.page import Live, fill, write_live, write_policy
from forkpoint.report.page_data import bounded, script_json

_LISTED: Final = 500
_TOP: Final = 20


@dataclass(frozen=True, slots=True)
class Overview:
    at: int
    """When it was read, in seconds since 1970."""
    store: str
    totals: StoreTotals
    bars: tuple[Bar, ...]
    bar_s: int
    forks: tuple[RecurringFork, ...]
    nodes: tuple[NodeOdds, ...]
    """Computed from the whole store even if the page is filtered: the odds of a node depend on every incident."""
    incidents: tuple[ListedIncident, ...]


def read_overview(store: Store, filters: Filters = EVERYTHING) -> Overview:
    found, width = bars(store, filters)
    return Overview(
        at=int(time.time()),
        store=store.name,
        totals=totals(store, filters),
        bars=tuple(found),
        bar_s=width,
        forks=tuple(top_forks(store, filters, _TOP)),
        nodes=weigh(host_exposures(store))[:_TOP],
        incidents=tuple(list_incidents(store, filters, _LISTED)),
    )


def render_page(overview: Overview, live: Live | None = None) -> str:
    """`live`: for a served page, which reloads when the store changes."""
    front = _front()
    parts = {
        "CSP": write_policy(front["css"], front["js"], live=live is not None),
        "STYLE": front["css"],
        "SCRIPT": front["js"],
        "DATA": _data(overview),
        "LIVE": write_live(live) if live else "",
    }
    return fill(front["html"], parts)


@cache
def _front() -> dict[str, str]:
    web = files("forkpoint") / "web"
    return {kind: (web / f"history.{kind}").read_text("utf-8") for kind in ("html", "css", "js")}


def _data(overview: Overview) -> str:
    """Strings as they are shown: the script inserts them as text only."""
    told: dict[str, Any] = {
        **msgspec.to_builtins(overview),
        "bars": [[bar.start, bar.cause, bar.job, bar.count, round(bar.gpu_hours, 2)] for bar in overview.bars],
        "nodes": [_node(node) for node in overview.nodes],
        "incidents": [
            {**msgspec.to_builtins(incident), "resolution": describe_resolution(incident)}
            for incident in overview.incidents
        ],
    }
    return script_json(map_texts(told, bounded))


def _node(node: NodeOdds) -> dict[str, Any]:
    return {
        "name": node.name,
        "took_part": node.took_part,
        "suspected": node.best.suspected,
        "expected": round(node.best.expected, 2),
        "odds": say_odds(node.best.odds),
        "notable": node.is_notable,
        "confirm": to_confirm(node)[0],
    }
