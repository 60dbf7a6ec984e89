"""`ranks.json`: what observers of a live job (guard, watch, controller) put beside the dumps. `ingest/rank_states.py`
reads it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from forkpoint.model.world import ProcessGroup

SCHEMA: Final = "forkpoint.ranks/1"


@dataclass(frozen=True, slots=True)
class KnownRank:
    rank: int
    state: str
    """`running`, `finished`, `raised`, `gone`, `stopped` or `silent`."""
    says: str = ""
    """The traceback it ended with, or who saw it."""


def render_ranks(  # noqa: PLR0913 - a field of the file each
    world_size: int | None,
    still_s: float | None,
    *,
    stalled: bool,
    ranks: Iterable[KnownRank] = (),
    groups: Iterable[ProcessGroup] = (),
    steps: Iterable[tuple[str, int, int, int]] = (),
    exit_code: int | None = None,
) -> str:
    """`still_s`: for how long nothing has moved; `stalled`: long enough to call it a hang. `steps`: group, step, rank and
    calls so far. `exit_code`: of the command that ran the job on a node, once it has ended.
    """
    told = {
        "schema": SCHEMA,
        "world_size": world_size,
        "still_s": still_s,
        "stalled": stalled,
        "exit_code": exit_code,
        "ranks": [{"rank": r.rank, "state": r.state, "says": r.says} for r in ranks],
        "groups": [{"name": g.name, "desc": g.desc, "ranks": g.ranks} for g in groups],
        "steps": [{"group": group, "step": step, "rank": rank, "calls": calls} for group, step, rank, calls in steps],
    }
    return json.dumps(told, indent=1)
